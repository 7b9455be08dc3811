//! Test runs. Without a socket the program takes no frame, and counts frames of flows as `dropped.no_socket`.

use super::*;
use bpf::LoadError;
use std::net::Ipv4Addr;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn at(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

/// A packet from 10.0.0.2 to 10.0.0.1 with this number, flags and offset.
fn packet(protocol: u8, number: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]].concat();
    frame.extend(((20 + payload.len()) as u16).to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend(payload);
    frame
}

/// The transport header and some bytes, between these ports.
fn transport(from: u16, to: u16) -> Vec<u8> {
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.resize(40, 7);
    bytes
}

fn error(kind: u8, quoted: &[u8]) -> Vec<u8> {
    packet(ICMP, 1, 0, &[&[kind, 3, 0, 0, 0, 0, 0, 0], quoted].concat())
}

/// A header with eight bytes behind it, from 10.0.0.1 to 10.0.0.2.
fn quoted(protocol: u8, from: u16, to: u16) -> Vec<u8> {
    let mut quoted = packet(protocol, 9, 0, &transport(from, to)[..8])[14..].to_vec();
    quoted[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    quoted
}

/// A program with the flows 17 10.0.0.1:53 from all peers, and 17 and 6 10.0.0.1:4000 from 10.0.0.2:5000. `None`: that
/// is not permitted.
fn program() -> Option<ShareProgram> {
    let program = ShareProgram::new(MAC, 1).map_err(|error| match error {
        ProgramError::Load(LoadError { error, log, .. }) if error.kind() != io::ErrorKind::PermissionDenied => {
            panic!("{error}: {log}")
        }
        error => eprintln!("skipped (rights): {error}"),
    });
    let program = program.ok()?;
    for (protocol, local, remote) in
        [(UDP, at(1, 53), None), (UDP, at(1, 4000), Some(at(2, 5000))), (TCP, at(1, 4000), Some(at(2, 5000)))]
    {
        program.insert(&FlowKey { protocol, local, remote }).expect("there is room");
    }
    Some(program)
}

/// The reason for which a frame was counted. Exactly one counter must change.
fn reason(program: &ShareProgram, frame: &[u8]) -> &'static str {
    let before = program.counted();
    let verdict = program.test_run(frame).expect("it has a link header");
    let after = program.counted();
    let counted: Vec<_> = (0..REASONS.len()).filter(|at| after[*at] != before[*at]).collect();
    let [at] = counted[..] else { panic!("{counted:?}") };
    assert_eq!(after[at], before[at] + 1);
    // There is no socket.
    assert_eq!(verdict, if REASONS[at] == TAKEN { DROP } else { PASS });
    REASONS[at]
}

const TAKEN: &str = "dropped.no_socket";

#[test]
fn packets_of_flows_are_taken_and_no_others() {
    let Some(program) = program() else { return };
    let check = |frame: &[u8], expected: &str| assert_eq!(reason(&program, frame), expected, "{frame:x?}");
    check(&packet(UDP, 1, 0, &transport(5000, 4000)), TAKEN);
    check(&packet(TCP, 1, 0, &transport(5000, 4000)), TAKEN);
    check(&packet(UDP, 1, 0, &transport(1, 53)), TAKEN);
    // With the flag that forbids fragmentation.
    check(&packet(UDP, 1, 0x4000, &transport(1, 53)), TAKEN);
    check(&packet(UDP, 1, 0, &transport(5001, 4000)), "left.no_flow");
    check(&packet(UDP, 1, 0, &transport(4000, 5000)), "left.no_flow");
    check(&packet(TCP, 1, 0, &transport(1, 53)), "left.no_flow");
    check(&packet(132, 1, 0, &transport(1, 53)), "left.other_protocol");
    check(&packet(UDP, 1, 0, &transport(1, 53)[..7]), "left.truncated");
    check(&packet(UDP, 1, 0, &transport(1, 53)[..8]), TAKEN);
    check(&packet(TCP, 1, 0, &transport(5000, 4000)[..19]), "left.truncated");
    let changed = |at: usize, byte: u8| {
        let mut frame = packet(UDP, 1, 0, &transport(1, 53));
        frame[at] = byte;
        frame
    };
    check(&changed(0, 3), "left.other_hardware_address");
    check(&changed(5, 3), "left.other_hardware_address");
    check(&changed(13, 6), "left.not_ipv4");
    check(&changed(12, 0x81), "left.not_ipv4");
    check(&changed(14, 0x46), "left.ipv4_header");
    check(&changed(14, 0x65), "left.ipv4_header");
    check(&changed(17, 61), "left.truncated");
    check(&changed(17, 60), TAKEN);
    check(&changed(33, 9), "left.no_flow");
    check(&packet(UDP, 1, 0, &[])[..30], "left.short");
}

#[test]
fn a_flow_that_was_removed_is_the_hosts() {
    let Some(program) = program() else { return };
    let (local, frame) = (at(1, 53), packet(UDP, 1, 0, &transport(1, 53)));
    let flow = FlowKey { protocol: UDP, local, remote: None };
    for _ in 0..2 {
        assert_eq!(reason(&program, &frame), TAKEN);
        program.remove(&flow).expect("it is there");
        program.remove(&flow).expect("it is not there, which is no error");
        assert_eq!(reason(&program, &frame), "left.no_flow");
        program.insert(&flow).expect("there is room");
    }
}

#[test]
fn fragments_follow_their_first() {
    let Some(program) = program() else { return };
    let check = |frame: &[u8], expected: &str| assert_eq!(reason(&program, frame), expected, "{frame:x?}");
    let (first, later, last) = (0x2000, 0x2000 | 10, 20);
    let of_flow = |number, place| packet(UDP, number, place, &transport(1, 53));
    let of_host = |number, place| packet(UDP, number, place, &transport(1, 54));
    check(&of_flow(7, last), "left.fragment_of_no_flow");
    check(&of_flow(7, first), TAKEN);
    check(&of_flow(7, last), TAKEN);
    check(&of_flow(7, later), TAKEN);
    check(&of_flow(8, later), "left.fragment_of_no_flow");
    check(&packet(TCP, 7, later, &transport(1, 53)), "left.fragment_of_no_flow");
    // The host's datagram with the same number.
    check(&of_host(7, first), "left.no_flow");
    check(&of_host(7, last), "left.fragment_of_no_flow");
    // Too short to contain the ports.
    check(&packet(UDP, 9, first, &transport(1, 53)[..7]), "left.truncated");
    check(&of_flow(9, last), "left.fragment_of_no_flow");
}

#[test]
fn errors_about_flows_are_taken() {
    let Some(program) = program() else { return };
    let check = |frame: &[u8], expected: &str| assert_eq!(reason(&program, frame), expected, "{frame:x?}");
    for kind in [3, 11, 12] {
        check(&error(kind, &quoted(UDP, 4000, 5000)), TAKEN);
        check(&error(kind, &quoted(TCP, 4000, 5000)), TAKEN);
    }
    let stray = "left.icmp";
    check(&error(8, &quoted(UDP, 4000, 5000)), stray);
    check(&error(5, &quoted(UDP, 4000, 5000)), stray);
    check(&error(3, &quoted(UDP, 5000, 4000)), stray);
    // Flows without a peer ignore errors, since any host could forge them.
    check(&error(3, &quoted(UDP, 53, 5000)), stray);
    check(&error(3, &quoted(UDP, 4000, 5000)[..27]), stray);
    let changed = |at: usize, byte: u8| {
        let mut quoted = quoted(UDP, 4000, 5000);
        quoted[at] = byte;
        error(3, &quoted)
    };
    check(&changed(0, 0x46), stray);
    check(&changed(7, 1), stray);
    check(&changed(9, 132), stray);
    check(&changed(15, 9), stray);
    let mut fragment = error(3, &quoted(UDP, 4000, 5000));
    fragment[20] = 0x20;
    check(&fragment, stray);
}
