//! Traffic out of a fuzzer's input: messages of a connection or datagrams, each with a head that says its side and length.
//! The frames are well formed: what fuzzing changes is what the filters above them read.

use testkit::packets::{CLIENT, Conversation, End, SERVER, udp};
use testkit::{Chain, Outcome};

/// Messages of `input`: side (0 client, 1 server) and bytes. A head of two bytes gives the length in its low 14 bits, the
/// side in its highest bit.
pub fn messages(mut input: &[u8]) -> Vec<(usize, &[u8])> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = input.split_first_chunk::<2>() {
        let head = u16::from_le_bytes(*head);
        let (message, rest) = rest.split_at(rest.len().min(usize::from(head & 0x3fff)));
        messages.push((usize::from(head >> 15), message));
        input = rest;
    }
    messages
}

/// One connection to `port` that carries `messages` in segments of at most `size` bytes, and ends.
pub fn connection(messages: &[(usize, &[u8])], port: u16, size: usize) -> Chain {
    let mut conversation = Conversation::open(CLIENT, (SERVER.0, port), 1000);
    for (side, message) in messages {
        for segment in message.chunks(size) {
            conversation.send(*side, segment);
        }
    }
    conversation.fin(0).fin(1);
    Chain::frames(1, &conversation.frames)
}

/// Datagrams between a client and `port` of a server.
pub fn datagrams(messages: &[(usize, &[u8])], port: u16) -> Chain {
    let ends: [End; 2] = [CLIENT, (SERVER.0, port)];
    let frame = |side: usize, message: &[u8]| udp(ends[side], ends[1 - side], message);
    let frames: Vec<_> =
        (0..).map(|at| at * 1_000_000).zip(messages.iter().map(|(side, message)| frame(*side, message))).collect();
    Chain::frames(1, &frames)
}

/// Runs `chain`, in which nothing may fail: bad traffic is counted.
pub fn run(chain: Chain) -> Outcome {
    let outcome = chain.run();
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome
}
