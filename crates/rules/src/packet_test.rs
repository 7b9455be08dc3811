//! Keywords that test a header field of a packet, or a property of its flow.

use crate::event::Packet;
use crate::mistake::Read;
use crate::names::{App, EVENTS};
use crate::number::Compare;
use crate::state::FlowState;
use crate::text::{Opt, Word, unsigned};

#[derive(Clone, Debug)]
pub(crate) enum PacketTest {
    Ttl(Compare),
    Tos(Compare),
    Id(Compare),
    IpProtocol(Compare),
    FragmentBits { bits: u8, mode: Mode },
    FragmentOffset(Compare),
    IpOption { number: Option<u8> },
    SameIp,
    PayloadSize(Compare),
    Sequence(Compare),
    Acknowledgment(Compare),
    Window(Compare),
    Flags { flags: u8, ignored: u8, mode: Mode },
    Mss(Compare),
    Scale(Compare),
    IcmpType(Compare),
    IcmpCode(Compare),
    IcmpId(Compare),
    IcmpSequence(Compare),
    IgmpType(Compare),
    SctpTag(Compare),
    SctpChunkType(Compare),
    SctpChunkCount(Compare),
    StreamSize { side: Side, compare: Compare },
    App { app: App, negated: bool },
    Event(&'static str),
    Checksum { of: Sum, valid: bool },
    Age(Compare),
    Packets { side: Side, compare: Compare },
    Bytes { side: Side, compare: Compare },
}

/// How flags are compared: exactly these set, at least these set, any of these set, not all of these set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    All,
    Any,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
    Both,
    Either,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Ipv4,
    Tcp,
    Udp,
    Icmp,
    Icmp6,
    Igmp,
}

const ICMP_NONE: &[(&str, u64)] = &[];

impl PacketTest {
    /// Reads an option; `None`: not a packet test.
    pub fn read(option: &Opt<'_>) -> Read<Option<PacketTest>> {
        let compare = |bits: u32| {
            let words = ICMP_NONE;
            let name = |text: &str| words.iter().find(|word| word.0 == text).map(|word| word.1);
            Compare::read(option.needed()?, bits, name)
        };
        Ok(Some(match option.name.text {
            "ttl" => PacketTest::Ttl(compare(8)?),
            "tos" => PacketTest::Tos(compare(8)?),
            "id" => PacketTest::Id(compare(16)?),
            "ip_proto" => {
                let value = option.needed()?;
                PacketTest::IpProtocol(Compare::read(value, 8, protocol_number)?)
            }
            "fragbits" => fragment_bits(option.needed()?)?,
            "fragoffset" => PacketTest::FragmentOffset(compare(16)?),
            "ipopts" => ip_option(option.needed()?)?,
            "sameip" => option.bare().map(|()| PacketTest::SameIp)?,
            "dsize" => PacketTest::PayloadSize(compare(16)?),
            "seq" | "tcp.seq" => PacketTest::Sequence(compare(32)?),
            "ack" | "tcp.ack" => PacketTest::Acknowledgment(compare(32)?),
            "window" | "tcp.window" => PacketTest::Window(compare(16)?),
            "flags" | "tcp.flags" => flags(option.needed()?)?,
            "tcp.mss" => PacketTest::Mss(compare(16)?),
            "tcp.wscale" => PacketTest::Scale(compare(8)?),
            "itype" => PacketTest::IcmpType(compare(8)?),
            "icode" => PacketTest::IcmpCode(compare(8)?),
            "icmp_id" => PacketTest::IcmpId(compare(16)?),
            "icmp_seq" => PacketTest::IcmpSequence(compare(16)?),
            "igmp.type" => PacketTest::IgmpType(compare(8)?),
            "sctp.vtag" => PacketTest::SctpTag(compare(32)?),
            "sctp.chunk_cnt" => PacketTest::SctpChunkCount(compare(16)?),
            "sctp.chunk_type" => PacketTest::SctpChunkType(Compare::read(option.needed()?, 8, chunk_type)?),
            "stream_size" => stream_size(option.needed()?)?,
            "app-layer-protocol" => app(option.needed()?)?,
            "flow.age" => PacketTest::Age(compare(32)?),
            "flow.pkts_toserver" => PacketTest::Packets { side: Side::Client, compare: compare(32)? },
            "flow.pkts_toclient" => PacketTest::Packets { side: Side::Server, compare: compare(32)? },
            "flow.bytes_toserver" => PacketTest::Bytes { side: Side::Client, compare: compare(64)? },
            "flow.bytes_toclient" => PacketTest::Bytes { side: Side::Server, compare: compare(64)? },
            "flow.pkts" => sided(option.needed()?, |side, compare| PacketTest::Packets { side, compare }, 32)?,
            "flow.bytes" => sided(option.needed()?, |side, compare| PacketTest::Bytes { side, compare }, 64)?,
            name @ ("decode-event" | "stream-event" | "app-layer-event") => event(name, option.needed()?)?,
            name if name.ends_with("-csum") => {
                let of = match name {
                    "ipv4-csum" => Sum::Ipv4,
                    "tcpv4-csum" | "tcpv6-csum" => Sum::Tcp,
                    "udpv4-csum" | "udpv6-csum" => Sum::Udp,
                    "icmpv4-csum" => Sum::Icmp,
                    "icmpv6-csum" => Sum::Icmp6,
                    "igmp-csum" => Sum::Igmp,
                    _ => return Ok(None),
                };
                let value = option.needed()?;
                match value.text.trim_matches('"') {
                    "valid" => PacketTest::Checksum { of, valid: true },
                    "invalid" => PacketTest::Checksum { of, valid: false },
                    _ => return value.wrong("a checksum is valid or invalid"),
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Whether the test needs the packet itself, so that it cannot run on a stream.
    pub fn needs_packet(&self) -> bool {
        !matches!(
            self,
            PacketTest::StreamSize { .. }
                | PacketTest::App { .. }
                | PacketTest::Age(_)
                | PacketTest::Packets { .. }
                | PacketTest::Bytes { .. }
        )
    }

    pub fn holds(&self, packet: &Packet<'_>, flow: Option<&FlowState>) -> bool {
        let network = |at: usize| packet.network.get(at).copied();
        let v4 = packet.version == 4;
        let tcp = |read: &dyn Fn(&crate::event::TcpHeader) -> Option<u64>| packet.tcp.as_ref().and_then(read);
        let some = |compare: &Compare, value: Option<u64>| value.is_some_and(|value| compare.holds(value));
        let icmp = packet.icmp.as_ref();
        match self {
            PacketTest::Ttl(compare) => some(compare, network(if v4 { 8 } else { 7 }).map(u64::from)),
            PacketTest::Tos(compare) => some(compare, network(1).filter(|_| v4).map(u64::from)),
            PacketTest::Id(compare) => some(compare, ipv4_half(packet, 4)),
            PacketTest::IpProtocol(compare) => some(compare, packet.flow.map(|flow| u64::from(flow.protocol))),
            PacketTest::FragmentBits { bits, mode } => {
                network(6).filter(|_| v4).is_some_and(|field| mode.holds(field >> 5 & 7, *bits))
            }
            PacketTest::FragmentOffset(compare) => some(compare, ipv4_half(packet, 6).map(|field| field & 0x1fff)),
            PacketTest::IpOption { number } => v4 && has_option(packet.network, *number),
            PacketTest::SameIp => packet.flow.is_some_and(|flow| flow.source == flow.target),
            PacketTest::PayloadSize(compare) => compare.holds(u64::from(packet.payload_len)),
            PacketTest::Sequence(compare) => some(compare, tcp(&|header| Some(header.sequence.into()))),
            PacketTest::Acknowledgment(compare) => some(compare, tcp(&|header| Some(header.acknowledgment.into()))),
            PacketTest::Window(compare) => some(compare, tcp(&|header| Some(header.window.into()))),
            PacketTest::Mss(compare) => some(compare, tcp(&|header| header.mss.map(u64::from))),
            PacketTest::Scale(compare) => some(compare, tcp(&|header| header.scale.map(u64::from))),
            PacketTest::Flags { flags, ignored, mode } => {
                let holds = |header: &crate::event::TcpHeader| mode.holds(header.flags & !ignored, *flags & !ignored);
                packet.tcp.as_ref().is_some_and(holds)
            }
            PacketTest::IcmpType(compare) => some(compare, icmp.map(|icmp| icmp.kind.into())),
            PacketTest::IcmpCode(compare) => some(compare, icmp.map(|icmp| icmp.code.into())),
            PacketTest::IcmpId(compare) => some(compare, icmp.and_then(|icmp| icmp.echo).map(|echo| echo.0.into())),
            PacketTest::IcmpSequence(compare) => {
                some(compare, icmp.and_then(|icmp| icmp.echo).map(|echo| echo.1.into()))
            }
            PacketTest::IgmpType(compare) => {
                let igmp = packet.flow.is_some_and(|flow| flow.protocol == packet::frame::protocol::IGMP);
                some(compare, packet.transport.first().filter(|_| igmp).map(|kind| u64::from(*kind)))
            }
            PacketTest::SctpTag(compare) => some(compare, sctp_tag(packet).map(u64::from)),
            PacketTest::SctpChunkType(compare) => {
                sctp_chunks(packet).any(|chunk| chunk.first().is_some_and(|kind| compare.holds(u64::from(*kind))))
            }
            PacketTest::SctpChunkCount(compare) => is_sctp(packet) && compare.holds(sctp_chunks(packet).count() as u64),
            PacketTest::StreamSize { side, compare } => flow.is_some_and(|flow| side.holds(flow.stream_bytes, compare)),
            PacketTest::App { app, negated } => {
                flow.is_some_and(|flow| flow.app_known && app.includes(flow.app) != *negated)
            }
            PacketTest::Event(name) => packet.events.contains(name),
            PacketTest::Checksum { of, valid } => checksum(packet, *of).is_some_and(|sum| sum == *valid),
            PacketTest::Age(compare) => {
                flow.is_some_and(|flow| compare.holds(packet.time.saturating_sub(flow.start) / 1_000_000_000))
            }
            PacketTest::Packets { side, compare } => flow.is_some_and(|flow| side.holds(flow.packets, compare)),
            PacketTest::Bytes { side, compare } => flow.is_some_and(|flow| side.holds(flow.bytes, compare)),
        }
    }
}

impl Mode {
    fn holds(self, bits: u8, wanted: u8) -> bool {
        match self {
            Mode::Exact => bits == wanted,
            Mode::All => bits & wanted == wanted,
            Mode::Any => bits & wanted != 0,
            Mode::None => bits & wanted != wanted,
        }
    }
}

impl Side {
    fn holds(self, [client, server]: [u64; 2], compare: &Compare) -> bool {
        match self {
            Side::Client => compare.holds(client),
            Side::Server => compare.holds(server),
            Side::Both => compare.holds(client) && compare.holds(server),
            Side::Either => compare.holds(client) || compare.holds(server),
        }
    }
}

fn ipv4_half(packet: &Packet<'_>, at: usize) -> Option<u64> {
    let two = packet.network.get(at..at + 2).filter(|_| packet.version == 4)?;
    Some(u64::from(two[0]) << 8 | u64::from(two[1]))
}

fn protocol_number(name: &str) -> Option<u64> {
    const NAMES: &[(&str, u64)] = &[
        ("icmp", 1),
        ("igmp", 2),
        ("tcp", 6),
        ("udp", 17),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("icmpv6", 58),
        ("ipv6-icmp", 58),
        ("sctp", 132),
        ("ospf", 89),
        ("pim", 103),
        ("vrrp", 112),
    ];
    NAMES.iter().find(|known| known.0.eq_ignore_ascii_case(name)).map(|known| known.1)
}

fn fragment_bits(value: Word<'_>) -> Read<PacketTest> {
    let (mut bits, mut mode) = (0, Mode::Exact);
    for letter in value.text.chars() {
        match letter {
            'M' => bits |= 1,
            'D' => bits |= 2,
            'R' => bits |= 4,
            '+' => mode = Mode::All,
            '*' => mode = Mode::Any,
            '!' => mode = Mode::None,
            ' ' => {}
            other => return value.wrong(format!("fragbits does not know {other}")),
        }
    }
    Ok(PacketTest::FragmentBits { bits, mode })
}

fn ip_option(value: Word<'_>) -> Read<PacketTest> {
    let number = match value.text {
        "rr" => Some(7),
        "eol" => Some(0),
        "nop" => Some(1),
        "ts" => Some(68),
        "sec" => Some(130),
        "esec" => Some(133),
        "lsrr" => Some(131),
        "ssrr" => Some(137),
        "satid" => Some(136),
        "rtralt" => Some(148),
        "cipso" => Some(134),
        "any" => None,
        other => return value.wrong(format!("\u{201c}{other}\u{201d} is no option of IP")),
    };
    Ok(PacketTest::IpOption { number })
}

fn has_option(header: &[u8], wanted: Option<u8>) -> bool {
    let mut rest = header.get(20..).unwrap_or_default();
    while let Some(kind) = rest.first() {
        if wanted.is_none_or(|wanted| wanted == *kind) {
            return true;
        }
        let length = match kind {
            0 => return false,
            1 => 1,
            _ => usize::from(rest.get(1).copied().unwrap_or(0)),
        };
        if length == 0 || *kind != 1 && length < 2 {
            return false;
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

/// SCTP chunk types (RFC 9260, 3.2).
pub const SCTP_CHUNKS: &[(&str, u64)] = &[
    ("data", 0),
    ("init", 1),
    ("init_ack", 2),
    ("sack", 3),
    ("heartbeat", 4),
    ("heartbeat_ack", 5),
    ("abort", 6),
    ("shutdown", 7),
    ("shutdown_ack", 8),
    ("error", 9),
    ("cookie_echo", 10),
    ("cookie_ack", 11),
    ("ecne", 12),
    ("cwr", 13),
    ("shutdown_complete", 14),
    ("auth", 15),
    ("i_data", 64),
    ("asconf_ack", 128),
    ("re_config", 130),
    ("pad", 132),
    ("forward_tsn", 192),
    ("asconf", 193),
    ("i_forward_tsn", 194),
];

fn chunk_type(name: &str) -> Option<u64> {
    SCTP_CHUNKS.iter().find(|known| known.0.eq_ignore_ascii_case(name)).map(|known| known.1)
}

fn is_sctp(packet: &Packet<'_>) -> bool {
    let sctp = packet.flow.is_some_and(|flow| flow.protocol == packet::frame::protocol::SCTP);
    sctp && !packet.fragment && packet.transport.len() >= 12
}

/// The verification tag of an SCTP packet; `None`: it is none.
pub fn sctp_tag(packet: &Packet<'_>) -> Option<u32> {
    let tag = packet.transport.get(4..8).filter(|_| is_sctp(packet))?;
    Some(tag.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// The chunks of an SCTP packet with their headers, as far as they were captured.
pub fn sctp_chunks<'a>(packet: &Packet<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let mut rest = if is_sctp(packet) { packet.payload } else { &[] };
    std::iter::from_fn(move || {
        let &[_, _, high, low, ..] = rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < 4 {
            rest = &[];
            return None;
        }
        let chunk = &rest[..length.min(rest.len())];
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(chunk)
    })
}

fn flags(value: Word<'_>) -> Read<PacketTest> {
    let parts = value.split(',');
    let mut mode = Mode::Exact;
    let mut bits = |word: Word<'_>, modes: bool| {
        let mut bits = 0u8;
        for letter in word.text.chars() {
            bits |= match letter.to_ascii_uppercase() {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                'A' => 16,
                'U' => 32,
                'E' => 64,
                'C' => 128,
                '1' => 128,
                '2' => 64,
                '0' => 0,
                ' ' => 0,
                '+' if modes => {
                    mode = Mode::All;
                    0
                }
                '*' if modes => {
                    mode = Mode::Any;
                    0
                }
                '!' if modes => {
                    mode = Mode::None;
                    0
                }
                _ => return word.wrong(format!("{letter} is no flag of TCP")),
            };
        }
        Ok(bits)
    };
    let flags = bits(parts[0], true)?;
    let ignored = match parts.get(1) {
        Some(word) => bits(*word, false)?,
        None => 0,
    };
    Ok(PacketTest::Flags { flags, ignored, mode })
}

fn side(word: Word<'_>) -> Read<Side> {
    match word.text {
        "client" | "toserver" => Ok(Side::Client),
        "server" | "toclient" => Ok(Side::Server),
        "both" => Ok(Side::Both),
        "either" => Ok(Side::Either),
        other => word.wrong(format!("\u{201c}{other}\u{201d} is none of client, server, both and either")),
    }
}

fn stream_size(value: Word<'_>) -> Read<PacketTest> {
    let parts = value.split(',');
    let [which, sign, number] = parts[..] else {
        return value.wrong("stream_size needs a side, a comparison and a number");
    };
    let number = unsigned(number, 32)?;
    let compare = match sign.text {
        "=" => Compare::Equal(number),
        "!=" => Compare::Other(number),
        "<" => Compare::Less(number),
        ">" => Compare::More(number),
        "<=" => Compare::AtMost(number),
        ">=" => Compare::AtLeast(number),
        other => return sign.wrong(format!("\u{201c}{other}\u{201d} is no comparison")),
    };
    Ok(PacketTest::StreamSize { side: side(which)?, compare })
}

fn sided(value: Word<'_>, make: impl Fn(Side, Compare) -> PacketTest, bits: u32) -> Read<PacketTest> {
    let parts = value.split(',');
    let [which, number] = parts[..] else { return value.wrong("a side and a number are needed") };
    Ok(make(side(which)?, Compare::read(number, bits, |_| None)?))
}

fn app(value: Word<'_>) -> Read<PacketTest> {
    let parts = value.split(',');
    if parts.len() > 1 {
        return parts[1].wrong("a mode of app-layer-protocol is not supported");
    }
    let (negated, name) = value.text.strip_prefix('!').map_or((false, value.text), |name| (true, name));
    match App::of_name(name) {
        Some(app) => Ok(PacketTest::App { app, negated }),
        None => value.wrong(format!("the protocol {name} is not supported")),
    }
}

fn event(kind: &str, value: Word<'_>) -> Read<PacketTest> {
    let known = EVENTS.iter().find(|events| events.0 == kind).map_or(&[][..], |events| events.1);
    // Other rule sets use different names for these.
    let name = match value.text.trim_start_matches("stream.") {
        "3whs_synack_resend_with_diff_ack" => "3whs_synack_resend_with_different_ack",
        "dns.not_request" => "dns.not_a_request",
        "dns.not_response" => "dns.not_a_response",
        "est_synack_resend_with_diff_ack" => "est_synack_resend_with_different_ack",
        name => name,
    };
    match known.iter().find(|known| **known == name) {
        Some(name) => Ok(PacketTest::Event(name)),
        None => value.wrong(format!("the event {} is not supported", value.text)),
    }
}

/// Whether the checksum is right. `None`: the packet has no such checksum, or was truncated.
fn checksum(packet: &Packet<'_>, of: Sum) -> Option<bool> {
    use packet::checksum::Sum as Bytes;
    use packet::frame::protocol;
    let flow = packet.flow?;
    let wanted = match of {
        Sum::Ipv4 => {
            let header = packet.network.get(..20).filter(|_| packet.version == 4)?;
            let length = usize::from(header[0] & 15) * 4;
            return Some(Bytes::of(packet.network.get(..length)?).checksum() == 0);
        }
        Sum::Tcp => protocol::TCP,
        Sum::Udp => protocol::UDP,
        Sum::Icmp => protocol::ICMP,
        Sum::Icmp6 => protocol::ICMPV6,
        Sum::Igmp => protocol::IGMP,
    };
    if flow.protocol != wanted || packet.fragment || packet.payload.len() as u32 != packet.payload_len {
        return None;
    }
    if of == Sum::Udp && packet.transport.get(6..8) == Some(&[0, 0]) && packet.version == 4 {
        return None;
    }
    // Join header and payload first: summing them apart fails for an odd header length.
    let length = packet.transport.len() + packet.payload.len();
    let mut all = Vec::with_capacity(length);
    all.extend_from_slice(packet.transport);
    all.extend_from_slice(packet.payload);
    let mut sum = Bytes::of(&all);
    if matches!(of, Sum::Tcp | Sum::Udp | Sum::Icmp6) {
        let address = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => Bytes::of(&address.octets()),
            std::net::IpAddr::V6(address) => Bytes::of(&address.octets()),
        };
        let fixed = Bytes::number(u32::from(flow.protocol)).and(Bytes::number(length as u32));
        sum = sum.and(address(flow.source)).and(address(flow.target)).and(fixed);
    }
    Some(sum.checksum() == 0)
}
