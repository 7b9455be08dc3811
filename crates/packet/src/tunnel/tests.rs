//! Tests every tunnel header: complete, cut at every length, and with any byte changed.

use super::*;
use crate::tunnel::stack::Layers;
use std::net::IpAddr;
use std::sync::LazyLock;

/// An IP packet with this protocol and payload, from 10.0.0.1 to 10.0.0.2 or 2001:db8::1 to ::2.
fn ip(version: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16;
    let mut packet = match version {
        4 => [&[0x45, 0][..], &(20 + len).to_be_bytes(), &[0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]]
            .concat(),
        _ => {
            let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 64], &address(1), &address(2)].concat()
        }
    };
    packet.extend(payload);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [&50_000u16.to_be_bytes(), &port.to_be_bytes(), &len.to_be_bytes()[..], &[0, 0], payload].concat()
}

/// The inner packet: TCP in IPv4, from 192.168.0.1 to 192.168.0.2.
fn inner_4() -> Vec<u8> {
    let mut packet = ip(4, 6, &[1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    packet[12..20].copy_from_slice(&[192, 168, 0, 1, 192, 168, 0, 2]);
    packet
}

fn inner_6() -> Vec<u8> {
    ip(6, 17, &udp(53, b"question"))
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ether_type.to_be_bytes(), payload].concat()
}

static PORTS: LazyLock<Ports> = LazyLock::new(Ports::default);

const RAW: LinkType = LinkType::RAW;

fn look_at(frame: &[u8]) -> Result<Carries, Malformed> {
    look(LinkType::ETHERNET, frame, frame.len() as u32, &PORTS)
}

/// Checks that the outer frame contains the inner packet in this tunnel. A changed frame may give any result, but no
/// packet beyond its bytes. A frame cut before the inner packet gives none.
fn check(outer: &[u8], inner: &[u8], link: LinkType, kind: Kind, id: Option<u32>) {
    let name = kind.name();
    let found = match look_at(outer) {
        Ok(Carries::Inner(found)) => found,
        other => panic!("{name}: {other:?}"),
    };
    let at = outer.len() - inner.len();
    assert_eq!((found.offset as usize, found.len as usize), (at, inner.len()), "{name}: {found:?}");
    assert_eq!((found.wire_len as usize, found.link, found.layer.kind, found.layer.id), (inner.len(), link, kind, id));
    assert!(!is_plain(LinkType::ETHERNET, outer, &PORTS), "{name}: it is not plain");
    let sound = |carries: Result<Carries, Malformed>, len: usize, what: &str| {
        if let Ok(Carries::Inner(inner)) = carries {
            assert!(inner.offset as usize + inner.len as usize <= len && inner.len > 0, "{name}, {what}: {inner:?}");
            assert!(inner.len <= inner.wire_len, "{name}, {what}: {inner:?}");
            let mut bytes = Vec::new();
            inner.layer.append_to(&mut bytes);
            assert_eq!(Layers::of(&bytes).collect::<Vec<_>>(), [inner.layer]);
        }
    };
    for len in 0..outer.len() {
        let carries = look(LinkType::ETHERNET, &outer[..len], outer.len() as u32, &PORTS);
        assert!(len > at || !matches!(carries, Ok(Carries::Inner(_))), "{name}: cut to {len}, {carries:?}");
        sound(carries, len, &format!("cut to {len}"));
    }
    for place in 0..outer.len() {
        for value in [0, 1, 0x0f, 0x40, 0x7f, 0x80, 0xff, outer[place] ^ 1, outer[place] ^ 0x20] {
            let mut changed = outer.to_vec();
            changed[place] = value;
            sound(look_at(&changed), outer.len(), &format!("{value:#x} at {place}"));
        }
    }
}

#[test]
fn tunnels_of_ip_protocols() {
    let (v4, v6, frame) = (inner_4(), inner_6(), ethernet(0x0800, &inner_4()));
    let check = |version: u8, protocol: u8, header: &[u8], inner: &[u8], kind: Kind, id: Option<u32>| {
        let link = if inner.len() == frame.len() { LinkType::ETHERNET } else { RAW };
        let packet = ip(version, protocol, &[header, inner].concat());
        check(&ethernet(if version == 4 { 0x0800 } else { 0x86dd }, &packet), inner, link, kind, id);
    };
    for version in [4, 6] {
        check(version, 4, &[], &v4, Kind::Ip, None);
        check(version, 41, &[], &v6, Kind::Ip, None);
        check(version, 97, &[0x30, 0], &frame, Kind::EtherIp, None);
        check(version, 47, &[0, 0, 8, 0], &v4, Kind::Gre, None);
    }
    let gre = |header: &[u8], inner: &[u8], id: Option<u32>| check(4, 47, header, inner, Kind::Gre, id);
    gre(&[0, 0, 0x86, 0xdd], &v6, None);
    gre(&[0, 0, 0x65, 0x58], &frame, None);
    gre(&[0x80, 0, 8, 0, 9, 9, 0, 0], &v4, None);
    gre(&[0x20, 0, 8, 0, 0, 0, 0, 5], &v4, Some(5));
    gre(&[0x10, 0, 8, 0, 0, 0, 0, 1], &v4, None);
    gre(&[0xb0, 0, 8, 0, 9, 9, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &v4, Some(7));
    // Routing: an ignored checksum and offset, two entries and the final one.
    gre(&[0x40, 0, 8, 0, 9, 9, 0, 0, 8, 0, 0, 4, 1, 1, 1, 1, 8, 0, 0, 0, 0, 0, 0, 0], &v4, None);
    gre(&[0x70, 0, 8, 0, 9, 9, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0], &v4, Some(7));
    // PPP, compressed and with the HDLC bytes.
    gre(&[0, 0, 0x88, 0x0b, 0x21], &v4, None);
    gre(&[0, 0, 0x88, 0x0b, 0xff, 3, 0, 0x57], &v6, None);
    gre(&[0, 0, 0x88, 0x3e], &v4, None);
    gre(&[0, 0, 0x88, 0x3e, 0, 1, 2, 3], &v4, None);
    let pptp = |header: &[u8], inner: &[u8]| check(4, 47, header, inner, Kind::Pptp, Some(0x33));
    let len = v4.len() as u8;
    pptp(&[0x30, 0x01, 0x88, 0x0b, 0, len + 1, 0, 0x33, 0, 0, 0, 1, 0x21], &v4);
    pptp(&[0x30, 0x81, 0x88, 0x0b, 0, len + 2, 0, 0x33, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0x21], &v4);
    let erspan = |header: &[u8], id: Option<u32>| check(4, 47, header, &frame, Kind::Erspan, id);
    erspan(&[0, 0, 0x88, 0xbe], None);
    erspan(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 7, 0x08, 0x64, 0, 0, 0, 3], Some(0x64));
    erspan(&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 7, 0x09, 0x01, 1, 2, 3, 4, 0, 0, 0, 0], Some(0x101));
    erspan(&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 7, 0, 5, 1, 2, 3, 4, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9], Some(5));
    check(4, 47, &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 7, 0, 5, 1, 2, 3, 4, 0, 0, 8, 0], &v4, Kind::Erspan, Some(5));
    // The frame's VLAN is in the header, or in the frame (type II, 0x18), or there is none.
    for (vlan, rest, expected) in [(23, 0x10, [5, 23].as_slice()), (23, 0x18, &[5]), (0, 0x10, &[5])] {
        let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, vlan, rest, 0x64, 0, 0, 0, 3];
        let packet = ip(4, 47, &[&header, frame.as_slice()].concat());
        let Ok(Carries::Inner(inner)) = look_at(&ethernet(0x8100, &[&[0, 5, 8, 0], packet.as_slice()].concat())) else {
            panic!("it has an inner frame")
        };
        assert_eq!(inner.layer.vlans.ids(), expected, "{vlan} {rest:#x}");
    }
    // L2TP without a cookie, with one, and with a sublayer as well.
    check(4, 115, &[0, 0, 1, 2], &frame, Kind::L2tp, Some(0x102));
    check(4, 115, &[0, 0, 1, 2, 9, 9, 9, 9], &frame, Kind::L2tp, Some(0x102));
    check(6, 115, &[0, 0, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0], &frame, Kind::L2tp, Some(0x102));
}

#[test]
fn tunnels_of_udp_ports() {
    let (v4, v6, frame) = (inner_4(), inner_6(), ethernet(0x86dd, &inner_6()));
    let check = |port: u16, header: &[u8], inner: &[u8], kind: Kind, id: Option<u32>| {
        let link = if inner.len() == frame.len() { LinkType::ETHERNET } else { RAW };
        let datagram = udp(port, &[header, inner].concat());
        check(&ethernet(0x0800, &ip(4, 17, &datagram)), inner, link, kind, id);
        check(&ethernet(0x86dd, &ip(6, 17, &datagram)), inner, link, kind, id);
    };
    for port in [4789, 8472] {
        check(port, &[0x08, 0, 0, 0, 0, 1, 2, 0], &frame, Kind::Vxlan, Some(0x102));
        // With a group policy.
        check(port, &[0x88, 0, 0, 5, 0, 1, 2, 0], &frame, Kind::Vxlan, Some(0x102));
    }
    // Reserved bits are ignored (RFC 7348, 5), also those that the extension uses at its port.
    check(4789, &[0xff, 0xff, 0xff, 0xff, 0, 1, 2, 0xff], &frame, Kind::Vxlan, Some(0x102));
    check(8472, &[0x0c, 0, 0, 1, 0, 1, 2, 0], &frame, Kind::Vxlan, Some(0x102));
    check(4790, &[0x0c, 0, 0, 1, 0, 1, 2, 0], &v4, Kind::Vxlan, Some(0x102));
    check(4790, &[0x0c, 0, 0, 2, 0, 1, 2, 0], &v6, Kind::Vxlan, Some(0x102));
    check(4790, &[0x0c, 0, 0, 3, 0, 1, 2, 0], &frame, Kind::Vxlan, Some(0x102));
    check(6081, &[0, 0, 0x65, 0x58, 0, 0, 9, 0], &frame, Kind::Geneve, Some(9));
    check(6081, &[1, 0, 0x08, 0x00, 0, 0, 9, 0, 1, 2, 3, 0], &v4, Kind::Geneve, Some(9));
    check(6081, &[0x02, 0x40, 0x86, 0xdd, 0, 0, 9, 0, 1, 2, 3, 0, 1, 2, 3, 0], &v6, Kind::Geneve, Some(9));
    let len = v4.len() as u8;
    check(2152, &[0x30, 0xff, 0, len, 0, 0, 0, 7], &v4, Kind::Gtp, Some(7));
    check(2152, &[0x32, 0xff, 0, len + 4, 0, 0, 0, 7, 0, 1, 0, 0], &v4, Kind::Gtp, Some(7));
    // A session container with another extension behind it.
    let extended = [0x34, 0xff, 0, len + 16, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0, 9, 0x40, 2, 1, 2, 3, 4, 5, 6, 0];
    check(2152, &extended, &v4, Kind::Gtp, Some(7));
    check(1701, &[0, 2, 0, 1, 0, 2, 0xff, 3, 0, 0x21], &v4, Kind::L2tp, Some(0x1_0002));
    check(1701, &[0x40, 2, 0, 9 + len, 0, 1, 0, 2, 0x21], &v4, Kind::L2tp, Some(0x1_0002));
    check(1701, &[0x4a, 2, 0, 18 + len, 0, 1, 0, 2, 0, 0, 0, 0, 0, 2, 9, 9, 0, 0x21], &v4, Kind::L2tp, Some(0x1_0002));
    check(1701, &[0, 3, 0, 0, 0, 0, 0, 5, 9, 9, 9, 9], &frame, Kind::L2tp, Some(5));
    check(4754, &[0x20, 0, 0x86, 0xdd, 0, 0, 0, 5], &v6, Kind::Gre, Some(5));
    check(3544, &[], &v6, Kind::Teredo, None);
    check(3544, &[0, 0, 1, 2, 3, 4, 5, 6], &v6, Kind::Teredo, None);
    check(3544, &[0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0], &v6, Kind::Teredo, None);
    check(3544, &[0, 1, 1, 2, 7, 7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6], &v6, Kind::Teredo, None);
    // The tunnel's port may be the source or the target.
    let mut answer = udp(3544, &v6);
    answer.swap(0, 2);
    answer.swap(1, 3);
    assert!(matches!(look_at(&ethernet(0x0800, &ip(4, 17, &answer))), Ok(Carries::Inner(_))));
}

/// MPLS with one label. Nested stacks are opened one at a time.
#[test]
fn tunnels_of_labels_and_sessions() {
    let (v4, v6, frame) = (inner_4(), inner_6(), ethernet(0x0800, &inner_4()));
    let labels = [0, 1, 0, 64, 0, 2, 0x41, 64];
    let labelled = |inner: &[u8]| [&labels, inner].concat();
    check(&ethernet(0x8847, &labelled(&v4)), &v4, RAW, Kind::Mpls, Some(0x24));
    check(&ethernet(0x8848, &labelled(&v6)), &v6, RAW, Kind::Mpls, Some(0x24));
    let wire = [&labels[..], &[0; 4], &frame].concat();
    check(&ethernet(0x8847, &wire), &frame, LinkType::ETHERNET, Kind::Mpls, Some(0x24));
    check(&ethernet(0x8100, &[&[0, 7, 0x88, 0x47][..], &labelled(&v4)].concat()), &v4, RAW, Kind::Mpls, Some(0x24));
    // In IP, UDP and GRE.
    let stack = labelled(&v4);
    for packet in
        [ip(4, 137, &stack), ip(4, 17, &udp(6635, &stack)), ip(4, 47, &[&[0, 0, 0x88, 0x47][..], &stack].concat())]
    {
        let Ok(Carries::Inner(inner)) = look_at(&ethernet(0x0800, &packet)) else { panic!("{packet:x?}") };
        assert_eq!(inner.link, LinkType::MPLS);
        let bytes = &packet[inner.offset as usize - 14..];
        let Ok(Carries::Inner(inner)) = look(inner.link, bytes, bytes.len() as u32, &PORTS) else {
            panic!("{bytes:x?}")
        };
        assert_eq!(
            (inner.layer.kind, inner.layer.id, &bytes[inner.offset as usize..]),
            (Kind::Mpls, Some(0x24), &v4[..])
        );
    }
    let session = |protocol: &[u8], inner: &[u8]| {
        let len = (protocol.len() + inner.len()) as u16;
        [&[0x11, 0, 0x12, 0x34][..], &len.to_be_bytes(), protocol, inner].concat()
    };
    check(&ethernet(0x8864, &session(&[0, 0x21], &v4)), &v4, RAW, Kind::Pppoe, Some(0x1234));
    check(&ethernet(0x8864, &session(&[0, 0x57], &v6)), &v6, RAW, Kind::Pppoe, Some(0x1234));
    let tagged = [&[0, 1, 0x81, 0, 0, 10, 0x88, 0x64][..], &session(&[0, 0x21], &v4)].concat();
    check(&ethernet(0x88a8, &tagged), &v4, RAW, Kind::Pppoe, Some(0x1234));
    let Ok(Carries::Inner(inner)) = look_at(&ethernet(0x88a8, &tagged)) else { panic!() };
    assert_eq!((inner.layer.vlans.ids(), inner.layer.addresses), (&[1, 10][..], None));
    // Padding behind the length of the session does not belong to the packet.
    let padded = [ethernet(0x8864, &session(&[0, 0x21], &v4)), vec![0; 12]].concat();
    let Ok(Carries::Inner(inner)) = look_at(&padded) else { panic!() };
    assert_eq!((inner.len as usize, inner.wire_len as usize), (v4.len(), v4.len()));
}

#[test]
fn the_layer_says_who_talks_to_whom() {
    let packet =
        [&[0x81, 0, 0, 5, 8, 0][..], &ip(4, 17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &[0; 14]].concat()))]
            .concat();
    let frame = [&[2; 12][..], &packet].concat();
    let Ok(Carries::Inner(inner)) = look_at(&frame) else { panic!() };
    let address = |last| IpAddr::from([10, 0, 0, last]);
    assert_eq!((inner.layer.addresses, inner.layer.vlans.ids()), (Some((address(1), address(2))), &[5][..]));
}

/// Packets without a tunnel pass; only a header that must be a tunnel's is malformed.
#[test]
fn what_is_no_tunnel() {
    let check = |packet: Vec<u8>, expected: Result<Carries, Malformed>| {
        assert_eq!(look_at(&ethernet(0x0800, &packet)), expected, "{packet:x?}");
    };
    let nothing = Ok(Carries::Nothing);
    let gre = |header: &[u8]| ip(4, 47, header);
    check(gre(&[0, 7, 8, 0]), Err(Malformed::TunnelHeader));
    check(gre(&[0x30, 1, 8, 0, 0, 0, 0, 0]), Err(Malformed::TunnelHeader));
    check(gre(&[0, 0, 8]), Err(Malformed::TruncatedTunnel));
    check(gre(&[0x20, 0, 8, 0, 0]), Err(Malformed::TruncatedTunnel));
    check(gre(&[&[0x40, 0, 8, 0, 0, 0, 0, 0][..], &[8, 0, 0, 0].repeat(20)].concat()), Err(Malformed::TunnelHeader));
    check(gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x30, 0, 0, 0]), Err(Malformed::TunnelHeader));
    // An acknowledgement of PPTP, another protocol, an invalid IPv4 packet.
    check(gre(&[0x20, 0x81, 0x88, 0x0b, 0, 0, 0, 1, 0, 0, 0, 1]), nothing);
    check(gre(&[0, 0, 0x20, 0, 1, 2, 3]), nothing);
    check(gre(&[0, 0, 8, 0, 0x60, 0, 0]), nothing);
    check(ip(4, 97, &[0x40, 0, 1]), Err(Malformed::TunnelHeader));
    check(ip(4, 97, &[0x30]), Err(Malformed::TruncatedTunnel));
    check(ip(4, 115, &[0, 0, 0, 0, 0xc8, 3, 0, 20]), nothing);
    check(ip(4, 115, &[0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]), nothing);
    let datagram = |port: u16, payload: &[u8]| ip(4, 17, &udp(port, payload));
    check(datagram(53, &[8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]), nothing);
    check(datagram(4789, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]), nothing);
    check(datagram(4789, &[8, 0, 0, 0, 0, 0, 0, 0, 1, 2]), nothing);
    check(datagram(4790, &[0x0c, 0, 0, 4, 0, 0, 0, 0, 0x45]), nothing);
    check(datagram(6081, &[0x40, 0, 8, 0, 0, 0, 0, 0, 0x45]), nothing);
    check(datagram(6081, &[0, 0, 8, 6, 0, 0, 0, 0, 0x45]), nothing);
    // An echo request of GTP, version 2, and an extension of length 0.
    check(datagram(2152, &[0x32, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]), nothing);
    check(datagram(2152, &[0x48, 0xff, 0, 4, 0, 0, 0, 0, 0x45, 0, 0, 0]), nothing);
    check(datagram(2152, &[0x34, 0xff, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x85, 0, 0, 0, 0x85, 0x45]), nothing);
    check(datagram(1701, &[0xc8, 2, 0, 12, 0, 1, 0, 2, 0, 0, 0, 0]), nothing);
    check(datagram(1701, &[0, 2, 0, 1, 0, 2, 0xc0, 0x21, 1, 1]), nothing);
    check(datagram(3544, &[&[0x60, 0, 0, 0, 0, 9][..], &[0; 40]].concat()), nothing);
    // PPPoE without IP.
    assert_eq!(look_at(&ethernet(0x8864, &[0x11, 0, 0, 1, 0, 6, 0xc0, 0x21, 1, 1, 0, 4])), nothing);
    assert_eq!(look_at(&ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0])), Ok(Carries::Nothing));
}

#[test]
fn a_fragment_is_told_and_not_looked_into() {
    let mut packet = ip(4, 47, &[&[0, 0, 8, 0][..], &inner_4()].concat());
    packet[6] = 0x20;
    let frame = ethernet(0x0800, &packet);
    let Ok(Carries::Fragment(fragment)) = look_at(&frame) else { panic!() };
    assert!(fragment.fragment.is_some_and(|fragment| fragment.more) && fragment.protocol == protocol::GRE);
    assert!(!is_plain(LinkType::ETHERNET, &frame, &PORTS));
}

/// `is_plain` is never true for a frame that `look` would open.
#[test]
fn what_is_plain_carries_nothing() {
    let rows: [(Vec<u8>, bool); 9] = [
        (ethernet(0x0800, &inner_4()), true),
        (ethernet(0x86dd, &inner_6()), true),
        (ethernet(0x8100, &[&[0, 7, 8, 0][..], &inner_4()].concat()), true),
        (ethernet(0x0800, &ip(4, 1, &[8, 0, 0, 0])), true),
        (ethernet(0x0800, &ip(4, 17, &udp(53, b"x"))), true),
        (ethernet(0x0800, &ip(4, 17, &udp(4789, b"x"))), false),
        (ethernet(0x0800, &ip(4, 47, b"xxxx")), false),
        (ethernet(0x0806, &[0; 28]), false),
        (ethernet(0x8847, &[0, 0, 0x10, 0, 0x45]), false),
    ];
    for (frame, plain) in rows {
        assert_eq!(is_plain(LinkType::ETHERNET, &frame, &PORTS), plain, "{frame:x?}");
    }
    assert!(is_plain(RAW, &inner_4(), &PORTS));
}

proptest::proptest! {
    #[test]
    fn whatever_comes_a_glance_agrees_with_the_walk(
        mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..90),
        shape in 0usize..5, protocol in proptest::sample::select(vec![1u8, 4, 6, 17, 41, 44, 47, 58, 97, 115, 137]),
        port in proptest::sample::select(vec![53u16, 1701, 2152, 3544, 4754, 4789, 4790, 6081, 6635, 8472]),
        fragment in proptest::sample::select(vec![0u8, 0x20, 0x40]),
    ) {
        let at = [0, 14, 18, 14, 18][shape];
        if bytes.len() > at + 48 {
            match shape {
                1 => bytes[12..15].copy_from_slice(&[8, 0, 0x45]),
                2 => bytes[12..19].copy_from_slice(&[0x81, 0, 0, 1, 8, 0, 0x45]),
                3 => bytes[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]),
                4 => bytes[12..19].copy_from_slice(&[0x81, 0, 0, 1, 0x86, 0xdd, 0x60]),
                _ => bytes[0] = 0x45,
            }
            if shape < 3 {
                bytes[at + 2..at + 4].copy_from_slice(&[0, 70]);
                (bytes[at + 6], bytes[at + 7], bytes[at + 9]) = (fragment, 0, protocol);
                bytes[at + 22..at + 24].copy_from_slice(&port.to_be_bytes());
            } else {
                bytes[at + 6] = protocol;
                bytes[at + 42..at + 44].copy_from_slice(&port.to_be_bytes());
            }
        }
        let link = if shape == 0 { RAW } else { LinkType::ETHERNET };
        let carries = look(link, &bytes, bytes.len() as u32, &PORTS);
        if is_plain(link, &bytes, &PORTS) {
            proptest::prop_assert_eq!(carries, Ok(Carries::Nothing));
        } else if let Ok(Carries::Inner(inner)) = carries {
            proptest::prop_assert!(inner.offset as usize + inner.len as usize <= bytes.len());
        }
    }
}
