//! Test runs of the kernel's program: it writes exactly the packets that the interpreter passes.

use buffer::live::{LiveMemory, LiveReader, Look, SlotFlags};
use buffer::shared::segment::Access;
use kernel::flow::Flow;
use kernel::{CaptureProgram, Expression, Way};
use program::cbpf::Instruction;
use program::{Compile, Interpreter, from_cbpf};
use std::os::fd::AsFd;
use std::sync::Arc;
use testkit::frames::{real_and_damaged, shaped};
use testkit::random::Random;

/// A capture program for test runs. `None`, with a message: programs cannot be loaded.
fn capture(ring_bytes: u64) -> Option<CaptureProgram> {
    match CaptureProgram::new(ring_bytes, true).and_then(|mut capture| capture.prepare(Way::In).map(|()| capture)) {
        Ok(capture) => Some(capture),
        Err(error) => {
            println!("skipped (rights): {error}");
            None
        }
    }
}

fn reader(capture: &CaptureProgram, bits: u64) -> LiveReader {
    LiveReader::new(LiveMemory::map(capture.areas(), capture.geometry(), Access::Read).unwrap(), bits)
}

fn expression(bit: u8, code: Option<&[Instruction]>) -> Expression {
    let program = code.map(|code| Arc::new(from_cbpf(code).unwrap()));
    Expression::new(bit, program)
}

fn take(reader: &mut LiveReader) -> Vec<(u64, buffer::live::Facts, Vec<u8>)> {
    let mut to = vec![0; 70_000];
    let mut got = Vec::new();
    loop {
        match reader.look() {
            Look::Nothing => return got,
            Look::More => {}
            Look::Packet(packet) => {
                let len = reader.copy_out(&packet, &mut to).unwrap();
                got.push((packet.number, packet.facts, to[..len].to_vec()));
                reader.advance();
            }
        }
    }
}

fn tcp_frame(source: u16, destination: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![0u8; len.max(54)];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = 6;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&source.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.to_be_bytes());
    for (at, byte) in frame.iter_mut().enumerate().skip(54) {
        *byte = (at * 7 + usize::from(source)) as u8;
    }
    frame
}

#[test]
fn what_is_wanted_is_written_whole() {
    let Some(capture) = capture(1 << 20) else { return };
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    // ether[36:2] = 80
    let port_80 = [at(0x28, 0, 0, 36), at(0x15, 0, 1, 80), at(0x06, 0, 0, 0x40000), at(0x06, 0, 0, 0)];
    capture.set(&[expression(0, None), expression(5, Some(&port_80))]).unwrap();
    let (mut all, mut web) = (reader(&capture, 1), reader(&capture, 1 << 5));
    let mut sent = Vec::new();
    for (number, len) in [60, 64, 127, 128, 129, 500, 1514, 2000, 60, 3000].into_iter().enumerate() {
        let frame = tcp_frame(1000 + number as u16, if number % 2 == 0 { 80 } else { 443 }, len);
        let run = capture.test_run(Way::In, &frame, 1).unwrap();
        assert_eq!(run.result, -1, "on to whatever else is there");
        sent.push(frame);
    }
    let got = take(&mut all);
    assert_eq!(got.len(), sent.len());
    for ((number, facts, bytes), frame) in got.iter().zip(&sent) {
        assert!(bytes == frame, "packet {number}");
        assert_eq!((facts.len as usize, facts.wire as usize), (frame.len(), frame.len()));
        assert!(facts.flags.has(SlotFlags::MONOTONIC) && !facts.flags.has(SlotFlags::TRUNCATED) && facts.time > 0);
        assert_eq!(facts.wanted, if number % 2 == 0 { 1 | 1 << 5 } else { 1 });
    }
    assert_eq!(take(&mut web).iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    let memory = all.memory();
    assert_eq!((memory.seen().packets, memory.wanted_and_lost()), (10, (10, 0)));
    assert_eq!((memory.matched(0).packets, memory.matched(5).packets), (10, 5));
    let bytes: usize = sent.iter().step_by(2).map(Vec::len).sum();
    assert_eq!(memory.matched(5).wire_bytes, bytes as u64);
    capture.set(&[]).unwrap();
    capture.test_run(Way::In, &sent[0], 1).unwrap();
    assert_eq!((memory.seen().packets, memory.next()), (11, 10));
}

#[test]
fn a_small_ring_goes_round() {
    let Some(capture) = capture(1) else { return };
    capture.set(&[expression(63, None)]).unwrap();
    let (mut quick, mut slow) = (reader(&capture, 1 << 63), reader(&capture, 1 << 63));
    for number in 0..3000u16 {
        let frame = tcp_frame(number, 80, 60 + usize::from(number) % 1400);
        capture.test_run(Way::In, &frame, 1).unwrap();
        let got = take(&mut quick);
        assert_eq!(got.len(), 1);
        assert!(got[0].2 == frame, "packet {number}");
    }
    let got = take(&mut slow);
    assert_eq!(got.len() as u64 + slow.overtaken(), 3000);
    for (number, _, bytes) in got {
        assert!(bytes == tcp_frame(number as u16, 80, 60 + number as usize % 1400), "packet {number}");
    }
}

#[test]
fn one_in_so_many_is_counted_over_all_processors_and_both_ways() {
    let Some(mut capture) = capture(8 << 20) else { return };
    capture.prepare(Way::Out).unwrap();
    let sampled = |bit, sample| Expression { sample, ..expression(bit, None) };
    capture.set(&[sampled(4, 7)]).unwrap();
    let mut reader = reader(&capture, 1 << 4);
    let frame = tcp_frame(1, 2, 60);
    const EACH: u32 = 5000;
    std::thread::scope(|scope| {
        for way in [Way::In, Way::Out, Way::In] {
            let (capture, frame) = (&capture, &frame);
            scope.spawn(move || capture.test_run(way, frame, EACH).unwrap());
        }
    });
    let memory = reader.memory().clone();
    let expected = (3 * EACH).div_ceil(7).into();
    assert_eq!((memory.seen().packets, memory.matched(4).packets), ((3 * EACH).into(), expected));
    assert_eq!(take(&mut reader).len() as u64, expected);
    // 15,000 is 6 more than a multiple of 7: the next packet is left out, and the one after it is not, whatever happens
    // meanwhile.
    capture.set(&[sampled(4, 7), sampled(5, 3)]).unwrap();
    let bits = (0..7).map(|_| {
        capture.test_run(Way::In, &frame, 1).unwrap();
        memory.matched(4).packets - expected + (memory.matched(5).packets << 8)
    });
    assert_eq!(bits.collect::<Vec<_>>(), [0x100, 0x101, 0x101, 0x201, 0x201, 0x201, 0x301]);
    // The bit's next expression starts counting at 0.
    capture.set(&[]).unwrap();
    capture.set(&[sampled(4, 7)]).unwrap();
    capture.test_run(Way::In, &frame, 1).unwrap();
    assert_eq!(memory.matched(4).packets, expected + 2);
}

#[test]
fn the_bell_rings_once_for_each_bit_that_is_armed() {
    let Some(capture) = capture(1) else { return };
    capture.set(&[expression(2, None), expression(3, None)]).unwrap();
    let frame = tcp_frame(1, 2, 60);
    capture.test_run(Way::In, &frame, 1).unwrap();
    assert_eq!(capture.rung(), 0);
    for _ in 0..300 {
        capture.arm(1 << 2 | 1 << 9);
        capture.test_run(Way::In, &frame, 1).unwrap();
        capture.test_run(Way::In, &frame, 1).unwrap();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(capture.bell(), rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, Some(&Default::default())).unwrap(), 1);
        assert_eq!(capture.rung(), 1 << 2);
        assert_eq!(capture.rung(), 0);
    }
}

#[test]
fn readers_cannot_write_what_the_kernel_writes() {
    let Some(capture) = capture(1) else { return };
    let areas = capture.areas();
    for fd in [areas.words, areas.slots, areas.data] {
        assert!(buffer::shared::segment::Mapping::of(fd.as_fd(), 4096, Access::Write).is_err());
        assert!(kernel::sys::update(fd.as_fd(), 0, &[0; 4096]).is_err());
    }
}

/// All kinds of expressions for which libpcap generates code.
const EXPRESSIONS: &[&str] = &[
    "tcp port 80",
    "udp port 53 or icmp",
    "host 10.0.0.1",
    "net 10.0.0.0/8 and not port 22",
    "ip6",
    "vlan",
    "vlan 7 and tcp",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "ip[8] < 64",
    "len > 500",
    "less 100",
    "greater 1000",
    "ether[0] & 1 = 1",
    "portrange 1000-2000",
    "tcp[2:2] = 80",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 100",
    "ether proto 0x806",
    "mpls",
    "pppoes",
    "ip proto 47",
    "ip6 proto 6",
    "tcp src port 1003 or tcp dst port 443",
    "ether[600] = 1",
    "ip[100:4] != 0",
    "ether[len - 1] = 0",
    "ip broadcast",
    "ether multicast",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "len % 3 = 1",
    "ip[1] / ip[9] > 0",
    "ether[14:4] * 2 > 7",
    "ether host 00:00:00:00:00:00",
    "dst net 10.0.0.2 mask 255.255.255.255",
];

#[test]
fn verdicts_are_the_interpreters() {
    let Some(capture) = capture(8 << 20) else { return };
    let compiler = testkit::Compiler::new();
    let mut programs = Vec::new();
    for expression in EXPRESSIONS {
        match compiler.compile(expression, 1, 262_144) {
            Ok(code) => programs.push((*expression, code)),
            Err(error) if error.kind == program::CompileErrorKind::Unavailable => return println!("skipped: {error}"),
            Err(error) => println!("{expression}: {error}"),
        }
    }
    assert!(programs.len() > 25, "{}", programs.len());
    let expressions = programs.iter().enumerate().map(|(bit, (_, code))| expression(bit as u8, Some(code)));
    let all = expression(63, None);
    capture.set(&expressions.chain([all]).collect::<Vec<_>>()).unwrap();
    let mut reader = reader(&capture, 1 << 63);
    let interpreters: Vec<_> = programs.iter().map(|(_, code)| Interpreter::from_cbpf(code).unwrap()).collect();
    let mut random = 0x1234_5678_9abc_def1u64;
    let (mut hits, mut refused) = (vec![0; programs.len()], 0);
    for round in 0..3000u64 {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let len = 14 + (next() % if round % 4 == 0 { 1500 } else { 140 }) as usize;
        let mut frame =
            tcp_frame([80, 443, 1003, 53, 22][(next() % 5) as usize], [80, 443, 9][(next() % 3) as usize], len);
        match round % 8 {
            0 => frame[12..16].copy_from_slice(&[0x81, 0, 0, 7]),
            1 => frame[12..14].copy_from_slice(&[0x86, 0xdd]),
            2 => frame[12..14].copy_from_slice(&[0x88, [0x47, 0x64][(next() % 2) as usize]]),
            3 => frame[23] = next() as u8,
            4 => frame[14] = next() as u8,
            5 => (0..8).for_each(|_| {
                let at = next() as usize % frame.len();
                frame[at] = next() as u8;
            }),
            _ => frame.truncate(14 + next() as usize % 60),
        }
        if capture.test_run(Way::In, &frame, 1).is_err() {
            // The kernel refuses test runs of frames without payload, and of frames too short for their IP header.
            refused += 1;
            continue;
        }
        let got = take(&mut reader);
        assert_eq!(got.len(), 1);
        assert!(got[0].2 == frame);
        assert_eq!(flow(&got[0].1), kernel::flow::of(&frame, frame.len() as u32, true), "{frame:02x?}");
        for (bit, interpreter) in interpreters.iter().enumerate() {
            let expected = interpreter.run(&frame, frame.len() as u32) != 0;
            hits[bit] += u32::from(expected);
            assert_eq!(got[0].1.wanted & 1 << bit != 0, expected, "`{}` on {frame:02x?}", programs[bit].0);
        }
    }
    assert!(refused < 600, "{refused} of 3000 frames were not run");
    let never: Vec<_> = programs.iter().zip(&hits).filter(|(_, hits)| **hits == 0).map(|((text, _), _)| text).collect();
    assert!(never.len() < 7, "never met: {never:?}");
}

fn flow(facts: &buffer::live::Facts) -> Flow {
    let ports = facts.flags.has(SlotFlags::PORTS).then_some(facts.class);
    assert!(ports.is_some() || facts.class == 0, "a class that nothing is said of");
    Flow { hash: facts.hash, ports }
}

#[test]
fn a_flow_is_what_it_is_in_rust() {
    for ethernet in [true, false] {
        let Ok(capture) =
            CaptureProgram::new(1 << 20, ethernet).and_then(|mut capture| capture.prepare(Way::Out).map(|()| capture))
        else {
            return println!("skipped (rights): programs cannot be loaded");
        };
        capture.set(&[expression(0, None)]).unwrap();
        let mut reader = reader(&capture, 1);
        let mut random = Random(0x5eed);
        let mut frames = real_and_damaged(1000, &mut random);
        frames.extend((0..30_000).map(|_| shaped(&mut random).bytes));
        let (mut taken, mut sure) = (0, 0);
        for frame in &frames {
            // The kernel refuses test runs of frames too short for an Ethernet header, or for their IP header.
            let frame = &frame[if ethernet { 0 } else { 14.min(frame.len()) }..];
            if capture.test_run(Way::Out, frame, 1).is_err() {
                continue;
            }
            let got = take(&mut reader);
            let expected = kernel::flow::of(frame, frame.len() as u32, ethernet);
            assert_eq!((got.len(), flow(&got[0].1)), (1, expected), "{frame:02x?}");
            assert!(got[0].1.flags.has(SlotFlags::OUTBOUND) && !got[0].1.flags.has(SlotFlags::TRUNCATED));
            taken += 1;
            sure += usize::from(expected.ports.is_some());
        }
        assert!(taken > frames.len() / 2, "{taken} of {} frames were run", frames.len());
        assert!(if ethernet { (taken / 4..taken).contains(&sure) } else { sure == 0 }, "{sure} of {taken}");
    }
}

#[test]
fn it_loads_where_the_guard_against_speculation_may_not_be_left_out() {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    if capture(1 << 20).is_none() {
        return;
    }
    // Capabilities belong to threads.
    let thread = std::thread::spawn(|| {
        let kept = capabilities(None).unwrap().permitted & (CapabilitySet::BPF | CapabilitySet::NET_ADMIN);
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).unwrap();
        let compiler = testkit::Compiler::new();
        let texts = ["tcp port 80", "ip6 and udp", "vlan 7 and icmp", "tcp[13] & 4 != 0", "ether[20:4] = len"];
        for ethernet in [true, false] {
            let link_type = if ethernet { 1 } else { 101 };
            let programs = texts.iter().filter_map(|text| compiler.compile(text, link_type, 262_144).ok());
            let expressions: Vec<Expression> =
                programs.enumerate().map(|(bit, code)| expression(bit as u8, Some(&code))).collect();
            let mut capture = CaptureProgram::new(1 << 20, ethernet).unwrap();
            capture.prepare(Way::In).unwrap();
            capture.prepare(Way::Out).unwrap();
            capture.set(&expressions).unwrap();
            let frame = &tcp_frame(80, 4000, 200)[if ethernet { 0 } else { 14 }..];
            capture.set(&[expression(0, None)]).unwrap();
            let mut reader = reader(&capture, u64::MAX);
            capture.test_run(Way::In, frame, 1).unwrap();
            let got = take(&mut reader);
            assert_eq!(got.len(), 1);
            let expected = kernel::flow::of(frame, frame.len() as u32, ethernet);
            assert_eq!((&got[0].2[..], flow(&got[0].1)), (frame, expected));
            assert_eq!(expected.ports.is_some(), ethernet);
        }
    });
    thread.join().unwrap();
}

#[test]
fn what_hangs_on_a_device_is_known_and_goes_with_its_program() {
    use kernel::inventory::{Object, exists, on_hook};
    use kernel::sys::Hook;
    if !testkit::network::may_make_networks() {
        return;
    }
    let pair = testkit::network::Pair::new();
    let index = pair.near.index;
    let hooks = || {
        let hooks = || [Hook::TcxIngress, Hook::TcxEgress].map(|hook| on_hook(index, hook).unwrap());
        pair.near.namespace.enter(hooks).unwrap()
    };
    let attach = || {
        let mut capture = CaptureProgram::new(1, true)?;
        capture.attach(index, Way::In)?;
        capture.attach(index, Way::Out).map(|()| capture)
    };
    assert_eq!(hooks(), [vec![], vec![]]);
    let capture = match pair.near.namespace.enter(attach).unwrap() {
        Ok(capture) => capture,
        Err(error) => {
            println!("skipped (rights): {error}");
            return;
        }
    };
    let there = hooks();
    assert!(there.iter().all(|ids| ids.len() == 1), "{there:?}");
    assert!(exists(Object::Program, there[0][0]).unwrap());
    drop(capture);
    assert_eq!(hooks(), [vec![], vec![]]);
    let began = std::time::Instant::now();
    while there.iter().flatten().any(|id| exists(Object::Program, *id).unwrap()) {
        assert!(began.elapsed().as_secs() < 30, "programs that nobody has go");
        std::thread::yield_now();
    }
}
