//! Two stacks talking to each other, and the blocks that observe their packets.

use std::sync::{Arc, Mutex};

use packet::LinkType;
use packet::capture::Stop;
use packet::pcap_file::Reader;
use program::cbpf::Instruction;
use proptest::prelude::*;
use stack::{Description, Discard, Env, SendError, TapFile, TapSink};

use crate::support::*;

proptest! {
    #[test]
    fn what_one_sends_the_other_gets(payload in proptest::collection::vec(any::<u8>(), 0..1472)) {
        let mut one = build("udp 4000 to=10.0.0.2:53 | dummy", 0);
        let mut two = build("dummy | udp 53 | ipv4 ttl=9 | dummy", 1);
        let frame = to_station(sent(&mut one, None, &payload).unwrap(), MACS[1]);
        let got = received(&mut two, &frame).unwrap();
        prop_assert_eq!(&got, &[(endpoint("10.0.0.1:4000"), payload.clone())]);
        let back = to_station(sent(&mut two, Some("10.0.0.1:4000"), &payload).unwrap(), MACS[0]);
        let got = received(&mut one, &back).unwrap();
        prop_assert_eq!(got, [(endpoint("10.0.0.2:53"), payload)]);
    }
}

/// Appends to a buffer that the test holds.
struct Shared(Arc<Mutex<Vec<u8>>>);

impl TapSink for Shared {
    fn write(&mut self, parts: &[&[u8]]) {
        let mut bytes = self.0.lock().unwrap();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
    }
}

/// Gives `tap` a buffer. Gives `bpf` a program that compares a packet's first byte with the expression.
#[derive(Default)]
struct Bench {
    file: Arc<Mutex<Vec<u8>>>,
    links: Vec<(Option<String>, LinkType)>,
}

impl Env for Bench {
    fn program(&mut self, expression: Option<&str>, link: LinkType) -> Result<Vec<Instruction>, String> {
        self.links.push((expression.map(str::to_owned), link));
        let first: u32 = match expression {
            Some(text) => text.parse().map_err(|_| format!("{text} is no byte"))?,
            None => return Ok(vec![]),
        };
        Ok(vec![
            Instruction { code: 0x30, jt: 0, jf: 0, k: 0 },
            Instruction { code: 0x15, jt: 0, jf: 1, k: first },
            Instruction { code: 0x06, jt: 0, jf: 0, k: 262_144 },
            Instruction { code: 0x06, jt: 0, jf: 0, k: 0 },
        ])
    }

    fn tap(&mut self, path: &str) -> Result<TapFile, String> {
        if path != "trace.pcap" {
            return Err(format!("cannot write {path}"));
        }
        Ok(TapFile { sink: Box::new(Shared(Arc::clone(&self.file))), epoch_ns: 1_700_000_000_000_000_000 })
    }
}

#[test]
fn a_tap_writes_a_capture_of_both_directions() {
    let mut env = Bench::default();
    let text = "udp 4000 to=10.0.0.2:53 | tap trace.pcap | ethernet";
    // Above `ethernet`, records begin with the IP header.
    for (text, link, skipped) in
        [(text, LinkType::RAW, 14), ("udp 4000 to=10.0.0.2:53 | tap trace.pcap", LinkType::ETHERNET, 0)]
    {
        env.file.lock().unwrap().clear();
        let mut stack = Description::parse(text).unwrap().build(&facts(0), &mut env).unwrap();
        let out = sent(&mut stack, None, b"out").unwrap();
        let back = sent(&mut build("udp 53 to=10.0.0.1:4000", 1), None, b"back!").unwrap();
        let back = to_station(back, MACS[0]);
        stack.receive(5, &back, &mut |_| {}).unwrap();

        let bytes = env.file.lock().unwrap().clone();
        let mut reader = Reader::open(&bytes).unwrap();
        assert_eq!((reader.header().link, reader.header().snap_len), (link, 262_144));
        let mut rest = &bytes[24..];
        for (frame, time) in [(&out, 0), (&back, 5)] {
            let expected = &frame[skipped..];
            let header = reader.header().record(rest.first_chunk().unwrap()).unwrap();
            assert_eq!(header.time_ns, 1_700_000_000_000_000_000 + time);
            assert_eq!((header.captured_len, header.wire_len), (expected.len() as u32, expected.len() as u32));
            assert_eq!(&rest[16..16 + expected.len()], expected);
            assert!(reader.next(rest).is_ok());
            rest = &rest[16 + expected.len()..];
        }
        assert!(rest.is_empty());
        assert!(matches!(reader.next(rest), Err(Stop::More { .. })), "the file ends here");
    }
}

#[test]
fn a_program_decides_in_both_directions() {
    let mut env = Bench::default();
    let built =
        |text: &str, host: usize, env: &mut Bench| Description::parse(text).unwrap().build(&facts(host), env).unwrap();
    // 69 is the first byte of an IPv4 header without options; no Ethernet frame here begins with it.
    let mut passing = built("udp 4000 to=10.0.0.2:53 | bpf 69 | ethernet", 0, &mut env);
    let frame = sent(&mut passing, None, b"x").unwrap();
    let mut rejecting = built("udp 4000 to=10.0.0.2:53 | bpf 69", 0, &mut env);
    assert_eq!(sent(&mut rejecting, None, b"x"), Err(SendError::Discarded(Discard::NoMatch)));
    assert_eq!(discards(&rejecting), [("rejected by bpf", 1)]);

    let frame = to_station(frame, MACS[1]);
    let mut passing = built("udp 53 | bpf 69 | ethernet", 1, &mut env);
    assert_eq!(received(&mut passing, &frame).unwrap().len(), 1);
    let mut rejecting = built("udp 53 | bpf 70 | ethernet", 1, &mut env);
    assert_eq!(received(&mut rejecting, &frame), Err(Discard::NoMatch));
    let expected = [("69", LinkType::RAW), ("69", LinkType::ETHERNET), ("69", LinkType::RAW), ("70", LinkType::RAW)];
    assert_eq!(env.links, expected.map(|(text, link)| (Some(text.to_owned()), link)));
}

#[test]
fn what_the_environment_refuses_is_shown_at_its_place() {
    let check = |text: &str, expected: &str| {
        let error = Description::parse(text).unwrap().build(&facts(0), &mut Bench::default()).err().unwrap();
        assert_eq!(error.render(text, "stack"), expected);
    };
    check(
        "udp 1 | bpf nonsense | ethernet",
        "error: nonsense is no byte
  --> stack:1:13
   |
 1 | udp 1 | bpf nonsense | ethernet
   |             ^^^^^^^^
",
    );
    check(
        "udp 1 | tap /nowhere",
        "error: cannot write /nowhere
  --> stack:1:13
   |
 1 | udp 1 | tap /nowhere
   |             ^^^^^^^^
",
    );
    let error = Description::parse("udp 1 | bpf").unwrap().build(&facts(0), &mut Bench::default()).err().unwrap();
    assert!(!error.message.is_empty(), "a program without instructions is none");
}
