//! Checks any bytes from one of the four control sockets. Shared by the fuzz target `control`.

use buffer::control::Message;
use capture::protocol::{Answer, DaemonState, MESSAGE_BYTES, Question};
use program::cbpf::Instruction;
use streamline::{parser, running};

/// Checks that one packet is read once, the same way by all readers, and that it takes no more memory than its bytes
/// justify.
pub fn check(packet: &[u8]) {
    once::<buffer::keeper::message::Message>(packet);
    once::<parser::protocol::Question>(packet);
    if !matches!(running::protocol::Asked::decode(packet), Some(running::protocol::Asked::OtherVersion(_))) {
        once::<running::protocol::Asked>(packet);
    }
    once::<running::protocol::Answer>(packet);
    if let Some(answer) = parser::protocol::Answer::decode(packet) {
        assert!(parser::protocol::Answer::decode(&answer.encode()).is_some(), "it cannot be passed on: {answer:?}");
    }
    if let Some(question) = once::<Question>(packet) {
        if let Question::Exchange(_, program) = &question {
            check_program(&program.0);
        }
        if let Question::Open(asked) = &question {
            check_program(&asked.program);
        }
    }
    match Answer::decode(packet) {
        None => {}
        Some(Answer::State(state)) => {
            assert!(bytes_of(&state) <= 64 * packet.len().max(1), "{} bytes of {}", bytes_of(&state), packet.len());
            let again = Answer::State(state).encode();
            assert!(again.len() <= MESSAGE_BYTES && Answer::decode(&again).is_some(), "it cannot be passed on");
        }
        Some(answer) => assert!(answer.encode() == packet, "written down otherwise: {answer:?}"),
    }
}

fn once<M: Message + std::fmt::Debug>(packet: &[u8]) -> Option<M> {
    let message = M::decode(packet)?;
    assert!(message.encode() == packet, "written down otherwise: {message:?}");
    Some(message)
}

fn check_program(program: &[Instruction]) {
    let Ok(lowered) = program::from_cbpf(program) else { return };
    let again = program::to_cbpf(&lowered);
    assert!(program::from_cbpf(&again).is_ok(), "what was lowered cannot be written down");
    let interpreter = program::Interpreter::new(&lowered);
    for packet in [&[][..], &[0xff; 60]] {
        interpreter.run(packet, packet.len() as u32);
    }
}

/// The approximate memory of a state.
fn bytes_of(state: &DaemonState) -> usize {
    let clients = state.clients.iter().map(|client| {
        let devices = client.readers.iter().map(|(_, device)| size_of_val(&(0u64, String::new())) + device.len());
        size_of_val(client) + client.purpose.len() + devices.sum::<usize>()
    });
    let rings = state.rings.iter().map(|ring| {
        let names = ring.statistics.iter().map(|(name, _)| size_of_val(&(String::new(), 0u64)) + name.len());
        let device = ring.device.name.len() + ring.device.how.len();
        size_of_val(ring) + device + size_of_val(ring.readers.as_slice()) + names.sum::<usize>()
    });
    clients.sum::<usize>() + rings.sum::<usize>()
}
