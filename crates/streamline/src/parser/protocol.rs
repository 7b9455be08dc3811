//! The messages between a parser process and its clients. A client says hello, then asks. Each question has one answer,
//! except `Leave` and `Forget`, which have none. When a reading ends, the process tells its client why, unasked.

use buffer::control::Message;
use buffer::control::codec::{self, In, Out, Wire};
use buffer::{wire_enum, wire_struct};
use filters::parser::Continuity;

/// Version of these messages, of the blocks' headers, and of the meaning of prefix texts.
pub const PROTOCOL: u32 = 5;

/// Longest packet in bytes.
pub const MESSAGE_BYTES: usize = 64 << 10;

/// A client's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// First message: the version it speaks, the program's version, and the client's purpose for people.
    Hello(u32, String, String),
    /// Asks to read what this prefix gives.
    Join(String),
    /// Ends the reading with this number.
    Leave(u64),
    /// Asks for the process's state.
    State,
    /// Withdraws everything that was asked for and refused: another request takes the place of this one.
    Forget,
}

/// Where a client can read what a prefix gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of this reading.
    pub id: u64,
    /// The socket of the ring's keeper.
    pub ring: String,
    /// How a reader notices missing blocks.
    pub continuity: Continuity,
}

/// A prefix that has readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixState {
    /// The prefix as a request.
    pub text: String,
    /// The prefix that it goes on from; empty if it begins at a device.
    pub base: String,
    /// The socket of its ring's keeper.
    pub ring: String,
    /// When it started, ns since 1970 UTC.
    pub since: u64,
    /// Blocks given, and their bytes.
    pub given: (u64, u64),
    /// Packets lost before a filter saw them, or lost blocks of the prefix that it goes on from.
    pub lost: u64,
    /// Its readers: process and purpose.
    pub readers: Vec<(i32, String)>,
}

/// The state of a parser process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParserState {
    /// The process.
    pub process: i32,
    /// What confines it, for people.
    pub confined: String,
    /// The prefixes that run.
    pub prefixes: Vec<PrefixState>,
}

/// A message of a parser process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answers a hello: the version it speaks.
    Hello(u32),
    /// Answers a join: read there.
    Joined(Endpoint),
    /// Answers a question for the state.
    State(ParserState),
    /// The question was refused, and why.
    Refused(String),
    /// Unasked: the reading with this number has ended, and why.
    Over(u64, String),
}

const READERS_LISTED: usize = 64;

wire_struct!(Endpoint { id, ring, continuity });
wire_struct!(PrefixState { text, base, ring, since, given, lost, readers });
wire_enum!(Question { 1 = Hello(version, program, purpose), 2 = Join(text), 3 = Leave(id), 4 = State, 5 = Forget });
wire_enum!(Answer { 1 = Hello(version), 2 = Joined(endpoint), 3 = State(state), 4 = Refused(why), 5 = Over(id, why) });

impl Message for Question {
    const BYTES: usize = MESSAGE_BYTES;
}

impl Message for Answer {
    const BYTES: usize = MESSAGE_BYTES;
}

impl Wire for ParserState {
    /// Leaves out prefixes that do not fit, and cuts purposes to the room there is, so that one long purpose hides no
    /// others.
    fn put(&self, out: &mut Out) {
        let prefix = |prefix: &PrefixState, purpose_bytes: usize| {
            let purpose = |text: &String| text[..text.floor_char_boundary(purpose_bytes)].to_string();
            let readers = prefix.readers.iter().take(READERS_LISTED);
            let readers = readers.map(|(process, text)| (*process, purpose(text))).collect();
            PrefixState { readers, ..prefix.clone() }
        };
        (self.process, self.confined.clone()).put(out);
        let without: usize = self.prefixes.iter().map(|one| codec::len(&prefix(one, 0))).sum();
        let readers: usize = self.prefixes.iter().map(|one| one.readers.len().min(READERS_LISTED)).sum();
        let room = MESSAGE_BYTES.saturating_sub(out.0.len() + size_of::<u32>() + without) / readers.max(1);
        codec::put_fitting(out, self.prefixes.iter().map(|one| prefix(one, room)), MESSAGE_BYTES);
    }

    fn get(fields: &mut In<'_>) -> Option<ParserState> {
        let (process, confined) = Wire::get(fields)?;
        Some(ParserState { process, confined, prefixes: Wire::get(fields)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_said_is_heard_and_what_is_cut_is_not() {
        let prefix = PrefixState {
            text: "ethernet eth0 | tcp | http".into(),
            base: "ethernet eth0 | tcp".into(),
            ring: "/run/x".into(),
            since: 1,
            given: (2, 3),
            lost: 5,
            readers: vec![(4, "me".into()), (-1, String::new())],
        };
        let endpoint = Endpoint { id: 7, ring: "/run/x".into(), continuity: Continuity::Messages };
        let answers = [
            Answer::Hello(1),
            Answer::Joined(endpoint),
            Answer::State(ParserState { process: 9, confined: "all".into(), prefixes: vec![prefix] }),
            Answer::Refused("no".into()),
            Answer::Over(7, "gone".into()),
        ];
        for answer in answers {
            let packet = answer.encode();
            assert_eq!(Answer::decode(&packet).as_ref(), Some(&answer));
            assert!((0..packet.len()).all(|cut| Answer::decode(&packet[..cut]).as_ref() != Some(&answer)));
        }
        let questions = [
            Question::Hello(1, "0".into(), "me".into()),
            Question::Join("x".into()),
            Question::Leave(3),
            Question::State,
            Question::Forget,
        ];
        for question in questions {
            let packet = question.encode();
            assert_eq!(Question::decode(&packet).as_ref(), Some(&question));
            assert!((0..packet.len()).all(|cut| Question::decode(&packet[..cut]).is_none()));
        }
    }

    #[test]
    fn a_state_that_is_too_long_is_cut() {
        let text = "x".repeat(2000);
        let one = PrefixState {
            text: text.clone(),
            base: String::new(),
            ring: String::new(),
            since: 0,
            given: (0, 0),
            lost: 0,
            readers: vec![(1, text); 3],
        };
        let packet =
            Answer::State(ParserState { process: 1, prefixes: vec![one; 100], ..ParserState::default() }).encode();
        assert!(packet.len() <= MESSAGE_BYTES);
        let Some(Answer::State(state)) = Answer::decode(&packet) else { panic!("a state") };
        assert!((1..100).contains(&state.prefixes.len()));
    }

    #[test]
    fn readers_with_much_to_say_hide_no_prefix() {
        let one = |at: u64| PrefixState {
            text: format!("prefix {at}"),
            base: String::new(),
            ring: String::new(),
            since: at,
            given: (0, 0),
            lost: 0,
            readers: vec![(1, "\u{1f980}".repeat(1000)); 64],
        };
        let state = ParserState { process: 1, prefixes: (0..64).map(one).collect(), ..ParserState::default() };
        let packet = Answer::State(state.clone()).encode();
        assert!(packet.len() <= MESSAGE_BYTES);
        let Some(Answer::State(heard)) = Answer::decode(&packet) else { panic!("a state") };
        assert!(heard.prefixes.iter().map(|prefix| &prefix.text).eq(state.prefixes.iter().map(|prefix| &prefix.text)));
        let one = Answer::State(ParserState { prefixes: vec![one(1)], ..state }).encode();
        let Some(Answer::State(heard)) = Answer::decode(&one) else { panic!("a state") };
        assert!(heard.prefixes[0].readers.iter().all(|(_, purpose)| purpose.len() > 500));
    }
}
