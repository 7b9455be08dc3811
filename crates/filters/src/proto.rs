//! Passes packets of a wanted IP protocol; class = the protocol number.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::select::{FrameTest, StreamTest, View, of_frames_or_streams, on_device};
use filter::prelude::*;
use packet::flow::Flow;
use packet::malformed::Malformed;
use program::Predicate;

/// The kind `proto`.
pub static KIND: Kind = Kind::new("proto", "passes IP packets, or those of a protocol; class = its number", make)
    .help(
        "Without a value it passes every IPv4 and IPv6 packet and sets the class to the number of the protocol that it \
         carries, behind extension headers. With a value it passes packets that carry a wanted protocol, by name or \
         number: `proto tcp`, `proto 47`, `proto \"tcp,udp\"`. An extension header is found where the IP header names \
         it as the first: `proto ah`, `proto 44`. Pieces of streams and messages pass by the protocol of their stream \
         and keep their class.",
    )
    .params(&[Param::new("protocol", ParamType::Text, "a name, a number, a range, or a list as \"tcp,udp\"").main()])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .class(ClassUse::Sets("protocol number"))
    .selects()
    .lowers(Lower::Selects(|params| Ok(on_device(test(params)?))))
    .pre_filter(pre_filter)
    .examples(&[
        Example {
            request: "pcap browse.pcap | proto udp | count",
            output: "{\"blocks\":2,\"bytes\":277,\"wire_bytes\":277}\n",
        },
        Example {
            request: "pcap browse.pcap | proto |6 count",
            output: "{\"blocks\":41,\"bytes\":24814,\"wire_bytes\":24814}\n",
        },
    ]);

/// Names of /etc/protocols in lower case, and tcpdump's names where they differ.
const PROTOCOL: Meaning = Meaning {
    what: "a protocol",
    max: 255,
    names: &[
        ("tcp", 6),
        ("udp", 17),
        ("icmp", 1),
        ("icmp6", 58),
        ("sctp", 132),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("igmp", 2),
        ("ipip", 4),
        ("ipv6", 41),
        ("dccp", 33),
        ("udplite", 136),
        ("rsvp", 46),
        ("eigrp", 88),
        ("ospf", 89),
        ("pim", 103),
        ("ipcomp", 108),
        ("vrrp", 112),
        ("carp", 112),
        ("l2tp", 115),
    ],
};

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    of_frames_or_streams(test(params)?, env)
}

fn test(params: &Params) -> Result<ProtocolTest, ParamError> {
    Ok(ProtocolTest { wanted: Numbers::from_param(params, "protocol", PROTOCOL)? })
}

fn pre_filter(params: &Params) -> Option<Predicate> {
    Some(Predicate::Protocol(Numbers::ranges_of(params, "protocol", PROTOCOL)?))
}

struct ProtocolTest {
    wanted: Option<Numbers>,
}

impl FrameTest for ProtocolTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let packet = view.packet()?;
        *class = Class(packet.protocol.into());
        let wants = |wanted: &Numbers| wanted.has(packet.protocol.into()) || wanted.has(packet.first_protocol.into());
        Ok(self.wanted.as_ref().is_none_or(wants))
    }
}

impl StreamTest for ProtocolTest {
    fn stream(&self, flow: &Flow) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.has(flow.protocol.into()))
    }
}
