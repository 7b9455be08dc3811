//! What a parser process and its clients say to each other. A client says hello, then asks; every question but leaving and
//! forgetting has one answer. When what a client reads comes to its end, the process tells it why, unasked.

use buffer::control::Message;
use buffer::control::codec::{self, In, Out, Wire};
use buffer::{wire_enum, wire_struct};
use filters::parser::Continuity;

/// Version of these messages, of the headers of blocks, and of what the texts of prefixes mean.
pub const PROTOCOL: u32 = 5;

/// Longest packet in bytes.
pub const MESSAGE_BYTES: usize = 64 << 10;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// First word: the version it speaks, the program's version, and what it is for, for people.
    Hello(u32, String, String),
    /// Let me read what this prefix gives.
    Join(String),
    /// I need no more what I joined under this number.
    Leave(u64),
    /// What is going on?
    State,
    /// What I asked for until now, and did not get, I want no more: another request takes the place of mine.
    Forget,
}

/// A place to read what a prefix gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of this reading.
    pub id: u64,
    /// The socket of the ring's keeper.
    pub ring: String,
    /// How one finds out that blocks are missing.
    pub continuity: Continuity,
}

/// A prefix that somebody reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixState {
    /// As a request.
    pub text: String,
    /// What it goes on from, where its first filters run as another prefix.
    pub base: String,
    /// The socket of its ring's keeper.
    pub ring: String,
    /// Since when it runs, ns since 1970 UTC.
    pub since: u64,
    /// Blocks it gave, and their bytes.
    pub given: (u64, u64),
    /// Packets that it lost before they could be looked at, or blocks of what it goes on from.
    pub lost: u64,
    /// Who reads it: process and purpose.
    pub readers: Vec<(i32, String)>,
}

/// What is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParserState {
    /// Its process.
    pub process: i32,
    /// What that is confined by, for people.
    pub confined: String,
    /// What runs.
    pub prefixes: Vec<PrefixState>,
}

/// What a parser process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a hello: the version it speaks.
    Hello(u32),
    /// Read there.
    Joined(Place),
    /// What is going on.
    State(ParserState),
    /// Not done, and why.
    Refused(String),
    /// Unasked: what was joined under this number has come to its end, and why.
    Over(u64, String),
}

/// Readers that are listed of one prefix.
const READERS_LISTED: usize = 64;

wire_struct!(Place { id, ring, continuity });
wire_struct!(PrefixState { text, base, ring, since, given, lost, readers });
wire_enum!(Question { 1 = Hello(version, program, purpose), 2 = Join(text), 3 = Leave(id), 4 = State, 5 = Forget });
wire_enum!(Answer { 1 = Hello(version), 2 = Joined(place), 3 = State(state), 4 = Refused(why), 5 = Over(id, why) });

impl Message for Question {
    const BYTES: usize = MESSAGE_BYTES;
}

impl Message for Answer {
    const BYTES: usize = MESSAGE_BYTES;
}

impl Wire for ParserState {
    /// Prefixes that do not fit are left out, and of what readers are for there is as much as there is room for: none that
    /// says much hides others.
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
        let place = Place { id: 7, ring: "/run/x".into(), continuity: Continuity::Messages };
        let answers = [
            Answer::Hello(1),
            Answer::Joined(place),
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
