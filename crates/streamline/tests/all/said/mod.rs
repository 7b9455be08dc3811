//! How the four control sockets deal with any input: random bytes, and a client's messages with random changes. Each
//! run uses the same few thousand inputs; `cargo xtask fuzz control` looks for others.

mod check;

use buffer::control::Message;
use buffer::keeper::message;
use capture::CaptureErrorKind;
use capture::attachment::Exchange;
use capture::attachment::Granted;
use capture::line::Line;
use capture::protocol::{Answer, ClientState, Code, DaemonState, Question};
use capture::registry::{ReaderState, RingState};
use capture::{Budget, By, CaptureRequest, Device, Direction, Mode, Past};
use check::check;
use program::cbpf::Instruction;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn always<S: Strategy>(cases: u32, inputs: S, holds: impl Fn(S::Value)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, random).run(&inputs, |input| {
        holds(input);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9]{1,15}", "\\PC{0,40}", Just("ä".repeat(80)), Just("x".repeat(5000))]
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let code = prop_oneof![any::<u16>(), (0u16..0xc0), Just(0x28), Just(0x30), Just(0x15), Just(0x06)];
    let k = prop_oneof![any::<u32>(), 0u32..64];
    (code, 0u8..4, 0u8..4, k).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
}

fn program() -> impl Strategy<Value = Vec<Instruction>> {
    let ends = Instruction { code: 6, jt: 0, jf: 0, k: 1 };
    vec(instruction(), 0..30).prop_map(move |mut program| {
        program.push(ends);
        program
    })
}

fn capture_request() -> impl Strategy<Value = CaptureRequest> {
    let numbers = ((any::<u32>(), any::<Option<u32>>()), any::<u64>(), any::<u64>(), any::<bool>(), any::<bool>());
    let choices = (0usize..2, 0usize..3, 0usize..3);
    (text(), choices, program(), numbers).prop_map(|(device, (mode, by, direction), program, numbers)| {
        let ((sample, counts), ring_bytes, last_ns, promiscuous, keep) = numbers;
        CaptureRequest {
            device,
            mode: [Mode::Tap, Mode::Consume][mode],
            by: [By::WhatIsBest, By::Kernel, By::PacketSocket][by],
            direction: [Direction::Both, Direction::In, Direction::Out][direction],
            program,
            sample,
            counts,
            promiscuous,
            ring_bytes,
            last_ns,
            keep,
        }
    })
}

fn question() -> impl Strategy<Value = Question> {
    prop_oneof![
        (any::<u32>(), text()).prop_map(|(version, purpose)| Question::Hello(version, purpose)),
        text().prop_map(Question::Device),
        capture_request().prop_map(Question::Open),
        (any::<u64>(), program()).prop_map(|(id, program)| Question::Exchange(id, Code(program))),
        any::<u64>().prop_map(Question::Close),
        Just(Question::State),
        any::<u64>().prop_map(Question::Stop),
        text().prop_map(Question::Forget),
    ]
}

fn device() -> impl Strategy<Value = Device> {
    (text(), any::<u32>(), any::<u16>(), any::<u32>(), text(), any::<bool>())
        .prop_map(|(name, index, link_type, mtu, how, copied)| Device { name, index, link_type, mtu, how, copied })
}

fn client() -> impl Strategy<Value = ClientState> {
    let readers = prop_oneof![vec((any::<u64>(), text()), 0..4), vec((any::<u64>(), text()), 64..70)];
    (any::<u64>(), any::<i32>(), any::<u32>(), text(), any::<u64>(), readers).prop_map(
        |(id, process, user, purpose, since, readers)| ClientState { id, process, user, purpose, since, readers },
    )
}

fn ring() -> impl Strategy<Value = RingState> {
    let reader = (any::<u64>(), 0u8..64, any::<(u64, u64)>(), any::<bool>())
        .prop_map(|(id, bit, (matched, lost), asleep)| ReaderState { id, bit, matched, lost, asleep });
    let counts = (any::<u32>(), any::<u64>(), any::<(u64, u64)>(), any::<u64>());
    let statistics = prop_oneof![vec((text(), any::<u64>()), 0..4), vec((text(), any::<u64>()), 98..103)];
    (device(), counts, vec(reader, 0..65), statistics).prop_map(|(device, counts, readers, statistics)| {
        let (group, ring_bytes, seen, written) = counts;
        RingState { device, group, ring_bytes, seen, written, kept: written % 2 == 1, readers, statistics }
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let granted =
        (device(), any::<[u64; 7]>(), 0u8..64, 18u32..29, text()).prop_map(|(device, numbers, bit, shift, note)| {
            let [id, packets, bytes, kept_before, seen_before, first, decided] = numbers;
            let past = Past { reaches_ns: first ^ decided, whole: id % 2 == 0 };
            let geometry = buffer::live::Geometry::new(1 << shift, shift);
            Granted {
                id,
                device,
                geometry,
                bit,
                matched_before: (packets, bytes),
                kept_before,
                seen_before,
                first,
                decided,
                past,
                note,
            }
        });
    let exchanged = (0u8..64, any::<(u64, u64)>(), any::<u64>()).prop_map(|(bit, matched_before, first)| Exchange {
        bit,
        matched_before,
        first,
    });
    let state = (text(), vec(client(), 0..4), vec(ring(), 0..3));
    prop_oneof![
        any::<u32>().prop_map(Answer::Hello),
        (device(), any::<Option<(u32, u32)>>()).prop_map(|(device, budget)| {
            let budget = budget.map(|(instructions, user)| Budget::new(instructions, user));
            Answer::Device(device, budget)
        }),
        granted.prop_map(Answer::Granted),
        exchanged.prop_map(Answer::Exchanged),
        Just(Answer::Done),
        state.prop_map(|(confined, clients, rings)| Answer::State(DaemonState { confined, clients, rings })),
        text().prop_map(|text| Answer::Refused(CaptureErrorKind::Full, text)),
    ]
}

fn others() -> impl Strategy<Value = Vec<u8>> {
    use message::{Message as Keepers, Refusal};
    use streamline::{parser, running};
    (text(), any::<u32>(), any::<u64>(), 0usize..9).prop_map(|(text, number, id, which)| match which {
        0 => Keepers::Register(number, text).encode(),
        1 => Keepers::Refused(Refusal::Busy, text).encode(),
        2 => Keepers::Left(number).encode(),
        3 => parser::protocol::Question::Hello(number, text.clone(), text).encode(),
        4 => parser::protocol::Answer::Over(id, text).encode(),
        5 => {
            let reader = (number as i32, text.clone());
            let (base, ring) = (String::new(), text.clone());
            let prefix = parser::protocol::PrefixState {
                text,
                base,
                ring,
                since: id,
                given: (id, id),
                lost: id,
                readers: vec![reader; 3],
            };
            let state = parser::protocol::ParserState { process: 1, prefixes: vec![prefix; 2], ..Default::default() };
            parser::protocol::Answer::State(state).encode()
        }
        6 => {
            let request = running::protocol::NewRequest {
                source: text.clone(),
                name: text.clone(),
                variables: [("x".to_string(), text)].into(),
            };
            running::protocol::Asked::Question(running::protocol::Question::Replace(request)).encode()
        }
        7 => {
            let (types, label) = (filter::Types::of(&[filter::Type::Bytes, filter::Type::Message]), text.clone());
            let edge = running::protocol::EdgeLine { name: text.clone(), number: "2".into(), types, label };
            let channel = running::protocol::ChannelLine { from: 1, full: 2, room: 16 };
            let doing = running::protocol::Doing::Asleep;
            let thread = running::protocol::ThreadLine { doing, blocks: 7, channels: vec![channel] };
            let stage = running::protocol::StageLine { filters: text.clone(), threads: vec![thread; 2] };
            let stages = running::protocol::StageLines { stages: vec![stage; 2], ..Default::default() };
            running::protocol::Answer::Edges(text, vec![edge; 2], stages).encode()
        }
        _ => running::protocol::Answer::Failed(text).encode(),
    })
}

/// A change to a packet: the place, the kind of change, and a byte.
type Change = (usize, u8, u8);

/// Applies changes: bytes changed, cut out, doubled, or inserted.
fn changed(mut packet: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for &(at, what, byte) in changes {
        let at = at % packet.len().max(1);
        match what {
            0 => packet.insert(at, byte),
            1 if !packet.is_empty() => drop(packet.remove(at)),
            2 => packet.truncate(at),
            3 => packet.extend_from_within(at..),
            _ if !packet.is_empty() => packet[at] = byte,
            _ => {}
        }
    }
    packet
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec((any::<usize>(), 0u8..8, prop_oneof![any::<u8>(), Just(0), Just(0xff), 0u8..8]), 0..6)
}

#[test]
fn any_bytes_are_understood_one_way_or_not_at_all() {
    always(3000, (0u8..24, vec(any::<u8>(), 0..200)), |(kind, mut bytes)| {
        bytes.insert(0, kind);
        check(&bytes);
    });
}

#[test]
fn what_is_said_and_changed_on_the_way_is_understood_one_way_or_not_at_all() {
    always(3000, (question(), changes()), |(question, changes)| check(&changed(question.encode(), &changes)));
    always(700, (answer(), changes()), |(answer, changes)| check(&changed(answer.encode(), &changes)));
    always(3000, (others(), changes()), |(packet, changes)| check(&changed(packet, &changes)));
}

#[test]
fn lines_say_positions() {
    always(300, any::<[u8; 8]>(), |bytes| assert_eq!(Line::from_bytes(bytes).to_bytes(), bytes));
}

#[test]
fn a_state_that_is_too_long_is_cut_and_can_be_read() {
    always(20, (client(), 0usize..2000, ring(), 0usize..200), |(client, clients, ring, rings)| {
        let confined = client.purpose.clone();
        let state = DaemonState { confined, clients: vec![client; clients], rings: vec![ring; rings] };
        let packet = Answer::State(state).encode();
        check(&packet);
        assert!(Answer::decode(&packet).is_some(), "{} bytes", packet.len());
    });
}
