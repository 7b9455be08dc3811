//! A rule's header: action, protocol, addresses, ports, direction.

use crate::address::{Addresses, Ports, Variables, addresses, key, ports};
use crate::event::Packet;
use crate::mistake::Read;
use crate::names::App;
use crate::text::Word;
use packet::Flow;
use packet::frame::protocol;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ip,
    Ip4,
    Ip6,
    Tcp,
    /// Packets of TCP, not streams.
    TcpPacket,
    /// Streams of TCP, not packets.
    TcpStream,
    Udp,
    Icmp,
    Icmp4,
    Icmp6,
    Sctp,
    Igmp,
    Arp,
    /// Any frame.
    Any,
    App(App),
}

#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub action: Action,
    pub protocol: Protocol,
    pub source: (Addresses, Ports),
    pub target: (Addresses, Ports),
    pub both_ways: bool,
    /// `=>`: the rule matches both sides of a transaction together.
    pub whole: bool,
}

impl Header {
    pub fn read(words: &[Word<'_>], end: usize, variables: &Variables) -> Read<Header> {
        let Some(first) = words.first() else { return Word::new("", 0).wrong("an action is missing") };
        let action = action(*first)?;
        let &[_, protocol, source, source_port, direction, target, target_port] = words else {
            // An unsupported word is reported before a missing one.
            if let Some(word) = words.get(1) {
                self::protocol(*word)?;
            }
            let what = "a rule begins with action, protocol, addresses, ports, direction, addresses, ports";
            return match words.get(7) {
                Some(word) => word.wrong(what),
                None => Word::new("", end).wrong(what),
            };
        };
        let protocol = self::protocol(protocol)?;
        let (both_ways, whole) = match direction.text {
            "->" => (false, false),
            "<>" => (true, false),
            "=>" => (false, true),
            "<-" => return direction.wrong("<- is no direction: turn addresses and ports"),
            other => return direction.wrong(format!("\u{201c}{other}\u{201d} is no direction")),
        };
        Ok(Header {
            action,
            protocol,
            source: (addresses(source, variables)?, ports(source_port, variables)?),
            target: (addresses(target, variables)?, ports(target_port, variables)?),
            both_ways,
            whole,
        })
    }

    /// Whether the packet matches protocol, addresses and ports.
    pub fn fits(&self, packet: &Packet<'_>) -> bool {
        let Some(flow) = packet.flow else {
            let arp = packet.link.ends_with(&[8, 6]);
            return self.protocol == Protocol::Any || self.protocol == Protocol::Arp && arp;
        };
        if !self.protocol.fits(packet, &flow) {
            return false;
        }
        // A rule on a whole transaction names the client first.
        let flow = if self.whole && !packet.to_server { flow.reversed() } else { flow };
        self.fits_flow(&flow, packet.fragment) || self.both_ways && self.fits_flow(&flow.reversed(), packet.fragment)
    }

    fn fits_flow(&self, flow: &Flow, fragment: bool) -> bool {
        let has_ports = packet::flow::has_ports(flow.protocol) && !fragment;
        let port = |ports: &Ports, port: u16| ports.is_any() || has_ports && ports.has(port);
        port(&self.source.1, flow.source_port)
            && port(&self.target.1, flow.target_port)
            && (self.source.0.is_any() || self.source.0.has(key(flow.source)))
            && (self.target.0.is_any() || self.target.0.has(key(flow.target)))
    }
}

impl Protocol {
    fn fits(self, packet: &Packet<'_>, flow: &Flow) -> bool {
        let number = flow.protocol;
        match self {
            Protocol::Any | Protocol::Ip | Protocol::App(_) => true,
            Protocol::Ip4 => packet.version == 4,
            Protocol::Ip6 => packet.version == 6,
            Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => number == protocol::TCP,
            Protocol::Udp => number == protocol::UDP,
            Protocol::Icmp => number == protocol::ICMP || number == protocol::ICMPV6,
            Protocol::Icmp4 => number == protocol::ICMP,
            Protocol::Icmp6 => number == protocol::ICMPV6,
            Protocol::Sctp => number == protocol::SCTP,
            Protocol::Igmp => number == protocol::IGMP,
            Protocol::Arp => false,
        }
    }

    pub fn app(self) -> Option<App> {
        if let Protocol::App(app) = self { Some(app) } else { None }
    }
}

fn action(word: Word<'_>) -> Read<Action> {
    let (name, rest) = word.text.split_once(':').map_or((word.text, None), |(name, rest)| (name, Some(rest)));
    if rest.is_some() || name == "accept" {
        return word.wrong("rules of a firewall (accept, and actions with a scope) are not supported");
    }
    named_action(Word::new(name, word.at))
}

/// Reads an action without a scope.
pub(crate) fn named_action(word: Word<'_>) -> Read<Action> {
    match word.text {
        "alert" => Ok(Action::Alert),
        "pass" => Ok(Action::Pass),
        "drop" => Ok(Action::Drop),
        "reject" | "rejectsrc" => Ok(Action::Reject { source: true, target: false }),
        "rejectdst" => Ok(Action::Reject { source: false, target: true }),
        "rejectboth" => Ok(Action::Reject { source: true, target: true }),
        "config" => word.wrong("the action config is not supported"),
        other => word.wrong(format!("\u{201c}{other}\u{201d} is no action")),
    }
}

fn protocol(word: Word<'_>) -> Read<Protocol> {
    if word.text.contains(':') {
        return word.wrong("a state of a protocol (a hook) is not supported");
    }
    Ok(match &*word.text.to_ascii_lowercase() {
        "ip" => Protocol::Ip,
        "pkthdr" => Protocol::Any,
        "ip4" | "ipv4" => Protocol::Ip4,
        "ip6" | "ipv6" => Protocol::Ip6,
        "tcp" => Protocol::Tcp,
        "tcp-pkt" => Protocol::TcpPacket,
        "tcp-stream" => Protocol::TcpStream,
        "udp" => Protocol::Udp,
        "icmp" => Protocol::Icmp,
        "icmpv4" => Protocol::Icmp4,
        "icmpv6" => Protocol::Icmp6,
        "sctp" => Protocol::Sctp,
        "igmp" => Protocol::Igmp,
        "arp" => Protocol::Arp,
        "ether" => Protocol::Any,
        name => match App::of_name(name) {
            Some(app) => Protocol::App(app),
            None => return word.wrong(format!("the protocol {} is not supported", word.text)),
        },
    })
}

/// The action of a matching rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop inspecting the packet, or the flow.
    Pass,
    /// Drop the packet; after a stream match, drop the flow.
    Drop,
    /// Drop, and notify endpoints.
    Reject {
        /// Notify the sender.
        source: bool,
        /// Notify the receiver.
        target: bool,
    },
    /// Only alert.
    Alert,
}

impl Action {
    /// Whether the action blocks the packet.
    pub fn blocks(self) -> bool {
        matches!(self, Action::Drop | Action::Reject { .. })
    }
}
