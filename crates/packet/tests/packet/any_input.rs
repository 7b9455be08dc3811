//! Feeds random, changed and cut bytes to the parsers. Each call must end in a value or an error.

use packet::capture::{ByteOrder, Stop};
use packet::capture_file::Reader;
use packet::frame::Frame;
use packet::tunnel::ports::Ports;
use packet::tunnel::{self, Carries};
use packet::{
    Flow, LinkType, Malformed, arp, dhcp, ethernet, frame, icmp, ipv4, ipv6, pcap_file, pcapng, sniff, tcp, udp,
};
use proptest::prelude::*;
use std::sync::LazyLock;

use crate::shared::captures;

const LINKS: [u16; 42] = [
    0, 1, 6, 7, 8, 9, 10, 11, 12, 14, 50, 51, 100, 101, 102, 104, 105, 107, 108, 109, 113, 117, 119, 122, 123, 127,
    129, 138, 163, 166, 192, 204, 205, 206, 219, 228, 239, 241, 242, 258, 274, 276,
];

/// Opens nested tunnels and checks that each inner packet lies inside the outer one.
fn read_tunnels(mut link: LinkType, mut bytes: &[u8], mut wire_len: u32, ports: &Ports) {
    for _ in 0..100 {
        let carries = tunnel::look(link, bytes, wire_len, ports);
        if tunnel::is_plain(link, bytes, ports) {
            assert_eq!(carries, Ok(Carries::Nothing));
        }
        match carries {
            Ok(Carries::Inner(inner)) => {
                let range = inner.offset as usize..(inner.offset + inner.len) as usize;
                assert!(!range.is_empty() && inner.len <= inner.wire_len.max(bytes.len() as u32), "{inner:?}");
                (link, bytes, wire_len) = (inner.link, &bytes[range], inner.wire_len);
            }
            Ok(Carries::Fragment(frame)) => {
                assert!(frame.fragment.is_some_and(|fragment| fragment.start <= frame.transport_offset));
                return;
            }
            Ok(Carries::Nothing) => return,
            Err(why) => {
                assert!(matches!(why, Malformed::TruncatedTunnel | Malformed::TunnelHeader), "{why}");
                return;
            }
        }
    }
}

/// Calls every function that takes a frame and checks that offsets stay inside it.
fn read_frame(link: LinkType, bytes: &[u8], wire_len: u32) -> Option<Frame> {
    static PORTS: LazyLock<Ports> = LazyLock::new(Ports::default);
    read_tunnels(link, bytes, wire_len, &PORTS);
    let frame = frame::parse(link, bytes, wire_len).ok()?;
    assert!(frame.network_offset < frame.transport_offset && frame.transport_offset <= frame.payload_end);
    assert!(frame.payload_end as usize <= bytes.len());
    assert!(frame.payload().len() as u32 <= frame.payload_wire_len);
    let _ = frame::parse_ip(bytes, frame.transport_offset, wire_len);
    let flow = Flow::of(&frame, bytes);
    assert_eq!(flow.canonical(), flow.reversed().canonical());
    if let Ok(tcp) = frame.tcp(bytes) {
        assert!(tcp.payload().len() as u32 <= tcp.payload_wire_len());
        assert!(tcp.options().count() <= 40);
    }
    if let Ok(udp) = frame.udp(bytes) {
        assert!(udp.payload().len() as u32 <= udp.payload_wire_len());
    }
    Some(frame)
}

/// Calls every header parser on bytes that may begin anywhere.
fn read_headers(bytes: &[u8]) {
    let _ = (ethernet::Packet::new_checked(bytes), ipv4::Packet::new_checked(bytes), ipv6::Packet::new_checked(bytes));
    let _ = arp::Packet::new_checked(bytes).map(|packet| (packet.sender(), packet.target(), packet.operation()));
    let _ = icmp::Packet::new_checked(bytes).map(|packet| (packet.echo(4), packet.echo(6)));
    let _ = tcp::Packet::new_checked(bytes, bytes.len() as u32).map(|packet| packet.options().count());
    let _ = udp::Packet::new_checked(bytes, bytes.len() as u32).map(|packet| packet.payload().len());
    for protocol in [ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::FRAGMENT, ipv6::AUTHENTICATION] {
        let _ = ipv6::walk(bytes, 0, protocol);
    }
    let _ = sniff::sniff(bytes);
    read_dhcp(bytes);
}

fn read_dhcp(bytes: &[u8]) {
    let Ok(packet) = dhcp::Packet::new_checked(bytes) else { return };
    let _ = (packet.operation(), packet.exchange(), packet.client(), packet.given(), packet.hardware());
    assert!(packet.options().count() <= bytes.len() && packet.option(dhcp::code::END).is_none());
}

/// Reads a file to its end through windows of `size`, as a program would. The file's length bounds the number of steps.
fn read_file(file: &[u8], size: usize) {
    let (mut at, mut wanted) = (0, size);
    let mut reader: Option<Reader> = None;
    for _ in 0..=4 * file.len() + 8 {
        let window = &file[at..file.len().min(at + wanted)];
        let step = match &mut reader {
            None => Reader::open(window).map(|(opened, consumed)| {
                reader = Some(opened);
                consumed
            }),
            Some(reader) => reader.next(window).map(|record| {
                assert_eq!(record.data(window).len(), record.captured_len as usize);
                assert!(record.consumed > 0 && record.consumed <= window.len());
                assert!(reader.interface(record.interface).is_some());
                let _ = pcapng::Options::new(record.options(window), ByteOrder::Little).count();
                let _ = pcapng::direction(record.options(window), ByteOrder::Big);
                record.consumed
            }),
        };
        match step {
            Ok(consumed) => (at, wanted) = (at + consumed, size),
            Err(Stop::Damaged(damage)) => {
                assert!(damage.offset <= file.len() as u64 && !damage.to_string().is_empty());
                return;
            }
            Err(Stop::More { consumed, need }) => {
                assert!(consumed <= window.len() && consumed + need > window.len());
                at += consumed;
                if at + need > file.len() {
                    let _ = reader.map(|reader| reader.finish(&file[at..]));
                    return;
                }
                wanted = need.max(size);
            }
        }
    }
    panic!("no end after {} bytes", file.len());
}

const PAYLOAD: &[u8] = b"what an application says";

/// A valid frame with tags, extension headers and a payload.
fn sound_frame(tags: usize, version_6: bool, kind: usize) -> Vec<u8> {
    let (protocol, transport): (u8, Vec<u8>) = match kind {
        0 => (17, [&[0xff, 0, 0, 53, 0, PAYLOAD.len() as u8 + 8, 0, 0], PAYLOAD].concat()),
        1 => {
            let header = [1, 0, 1, 187, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, 0x18, 1, 0, 0, 0, 0, 0];
            let options = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
            (6, [&header[..], &options, PAYLOAD].concat())
        }
        _ => (1, vec![8, 0, 0, 0, 0, 1, 0, 2, 9, 9]),
    };
    let mut bytes = vec![2; 12];
    for tag in 0..tags {
        bytes.extend_from_slice(&[[0x81, 0, 0, 7], [0x88, 0xa8, 0, 9]][tag % 2]);
    }
    if version_6 {
        let length = (transport.len() + 16) as u8;
        bytes.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, length, 0, 64]);
        bytes.extend_from_slice(&[1; 32]);
        bytes.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0, 1]);
    } else {
        let length = (transport.len() + 20) as u8;
        bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, length, 0, 1, 0, 0, 64, protocol, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }
    bytes.extend_from_slice(&transport);
    bytes
}

fn sound_file(pcapng: bool, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    if pcapng {
        pcapng::write_section(&mut file, &pcapng::Section { application: "test", ..Default::default() });
        let interface =
            pcapng::Description { link: LinkType::ETHERNET, snap_len: 0, name: "eth0", description: "", filter: "tcp" };
        pcapng::write_interface(&mut file, &interface);
    } else {
        pcap_file::write_header(&mut file, LinkType::ETHERNET, 262_144, pcap_file::Resolution::Nanoseconds);
    }
    for data in frames {
        let wire_len = data.len() as u32;
        if pcapng {
            pcapng::write_packet(
                &mut file,
                &pcapng::PacketBlock { wire_len, data, drop_count: 1, ..Default::default() },
            );
        } else {
            pcap_file::write_record_header(&mut file, 1, wire_len, wire_len, pcap_file::Resolution::Nanoseconds);
            file.extend_from_slice(data);
        }
    }
    file
}

/// Writes each value to its place; places beyond the end wrap around.
fn change(bytes: &mut [u8], changes: &[(usize, u8)]) {
    for &(place, value) in changes {
        if let Some(last) = bytes.len().checked_sub(1) {
            bytes[place % (last + 1)] = value;
        }
    }
}

/// The frames to be changed are valid at first, so that the changes reach deep.
#[test]
fn sound_frames_are_read() {
    for (tags, version_6, kind) in [(0, false, 0), (2, true, 0), (1, false, 1), (0, true, 1), (0, false, 2)] {
        let bytes = sound_frame(tags, version_6, kind);
        let frame = read_frame(LinkType::ETHERNET, &bytes, bytes.len() as u32).expect("a sound frame");
        match kind {
            0 => assert_eq!(frame.udp(&bytes).unwrap().payload(), PAYLOAD),
            1 => assert_eq!(frame.tcp(&bytes).unwrap().payload(), PAYLOAD),
            _ => assert_eq!(frame.protocol, frame::protocol::ICMP),
        }
    }
}

/// Cuts real frames and changes two bytes of each, one of them near its start. The places depend on the frame's number
/// only, so failures are repeatable.
#[test]
fn changed_captures() {
    const FRAMES_EACH: usize = 300;
    for capture in captures() {
        for (index, packet) in capture.packets.iter().take(FRAMES_EACH).enumerate() {
            let mut bytes = capture.data(packet).to_vec();
            let noise = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let place = |shift: u32, bound: usize| (noise >> shift) as usize % bound;
            change(&mut bytes, &[(place(8, 80), noise as u8), (place(16, 1600), (noise >> 40) as u8)]);
            read_frame(packet.link, &bytes, packet.record.wire_len);
            bytes.truncate(place(24, 1600));
            read_frame(packet.link, &bytes, packet.record.wire_len);
        }
    }
}

/// Reads the start of each real file with two bytes changed.
#[test]
fn changed_capture_files() {
    const START_BYTES: usize = 4_000;
    for capture in captures() {
        for round in 0..20_u64 {
            let noise = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut file = capture.file[..capture.file.len().min(START_BYTES)].to_vec();
            change(
                &mut file,
                &[((noise >> 16) as usize % 100, noise as u8), ((noise >> 24) as usize, (noise >> 8) as u8)],
            );
            read_file(&file, 1 + (noise >> 32) as usize % 2_000);
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0_usize..4096, any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_frames(bytes in prop::collection::vec(any::<u8>(), 0..200), link in prop::sample::select(&LINKS[..]), wire_len: u32) {
        read_frame(LinkType(link), &bytes, wire_len);
        read_headers(&bytes);
    }

    #[test]
    fn changed_frames(
        (tags, version_6, kind) in (0_usize..4, any::<bool>(), 0_usize..3),
        changes in changes(), keep in 0_usize..300, wire_len: u32, link in prop::sample::select(&LINKS[..]),
    ) {
        let mut bytes = sound_frame(tags, version_6, kind);
        change(&mut bytes, &changes);
        bytes.truncate(keep);
        read_frame(LinkType::ETHERNET, &bytes, wire_len);
        read_frame(LinkType(link), bytes.get(14..).unwrap_or_default(), wire_len);
    }

    /// Bytes behind a DHCP cookie, with options in all three places.
    #[test]
    fn dhcp_like_messages(bytes in prop::collection::vec(prop::sample::select(&[0_u8, 1, 2, 3, 4, 52, 53, 250, 255][..]), 236..600)) {
        read_dhcp(&[&bytes[..236], &dhcp::COOKIE, &bytes[236..]].concat());
    }

    #[test]
    fn random_files(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1_usize..64, magic in 0_usize..5) {
        let magics: [&[u8]; 5] = [
            b"", b"\xd4\xc3\xb2\xa1\x02\0\x04\0", b"\xa1\xb2\x3c\x4d\0\x02\0\x04", b"\x34\xcd\xb2\xa1\x02\0\x03\0",
            b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0",
        ];
        read_file(&[magics[magic], &bytes].concat(), size);
    }

    #[test]
    fn changed_files(pcapng: bool, kinds in prop::collection::vec(0_usize..3, 0..5), changes in changes(), keep in 0_usize..1000, size in 1_usize..400) {
        let frames: Vec<Vec<u8>> = kinds.into_iter().map(|kind| sound_frame(1, false, kind)).collect();
        let mut file = sound_file(pcapng, &frames);
        change(&mut file, &changes);
        file.truncate(keep);
        read_file(&file, size);
    }

    /// A file that was written is read back unchanged.
    #[test]
    fn written_files(pcapng: bool, data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8), time_ns in 0_u64..1 << 62) {
        let file = sound_file(pcapng, &data);
        let (mut reader, mut at) = Reader::open(&file).unwrap();
        for expected in &data {
            let record = reader.next(&file[at..]).unwrap();
            prop_assert_eq!(record.data(&file[at..]), &expected[..]);
            at += record.consumed;
        }
        let end = matches!(reader.next(&file[at..]), Err(Stop::More { .. }));
        prop_assert!(end);
        prop_assert!(reader.finish(&[]).is_ok());
        let text = packet::time::rfc3339(time_ns);
        prop_assert!(text.is_ascii() && text[29] == b'Z');
    }
}
