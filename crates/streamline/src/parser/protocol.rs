//! What is said on a parser process's control socket: one packet for each message.
//!
//! A client says hello, then asks; every question but leaving and forgetting has one answer. When what a client reads comes
//! to its end, it is told why, unasked. What comes from the other side is checked field by field.

use capture::codec::{In, Out};
use filters::parser::Continuity;

/// Version of these messages, of the headers of blocks, and of what the texts of prefixes mean.
pub const PROTOCOL: u32 = 3;

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

impl Question {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Question::Hello(version, program, purpose) => out.u8(1).u32(*version).text(program).text(purpose),
            Question::Join(text) => out.u8(2).text(text),
            Question::Leave(id) => out.u8(3).u64(*id),
            Question::State => out.u8(4),
            Question::Forget => out.u8(5),
        };
        out.0
    }

    /// From a packet; `None` where it says nothing that can be said.
    pub fn decode(packet: &[u8]) -> Option<Question> {
        let mut fields = In(packet);
        let question = match fields.u8()? {
            1 => Question::Hello(fields.u32()?, fields.text()?, fields.text()?),
            2 => Question::Join(fields.text()?),
            3 => Question::Leave(fields.u64()?),
            4 => Question::State,
            5 => Question::Forget,
            _ => return None,
        };
        fields.is_empty().then_some(question)
    }
}

impl Answer {
    /// As a packet. Of a state that is too long for one, prefixes that do not fit are left out, and of what readers are for
    /// there is as much as there is room for: none that says much hides others.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Answer::Hello(version) => out.u8(1).u32(*version),
            Answer::Joined(place) => out.u8(2).u64(place.id).text(&place.ring).u8(place.continuity as u8),
            Answer::State(state) => {
                out.u8(3).u32(state.process as u32).text(&state.confined);
                let without: usize = state.prefixes.iter().map(|prefix| encode_prefix(prefix, 0).0.len()).sum();
                let readers: usize = state.prefixes.iter().map(|prefix| listed(prefix).len()).sum();
                let room = MESSAGE_BYTES.saturating_sub(out.0.len() + without) / readers.max(1);
                for prefix in &state.prefixes {
                    let entry = encode_prefix(prefix, room);
                    if out.0.len() + entry.0.len() <= MESSAGE_BYTES {
                        out.0.extend(entry.0);
                    }
                }
                &mut out
            }
            Answer::Refused(why) => out.u8(4).text(why),
            Answer::Over(id, why) => out.u8(5).u64(*id).text(why),
        };
        out.0
    }

    /// From a packet; `None` where it says nothing that can be said.
    pub fn decode(packet: &[u8]) -> Option<Answer> {
        let mut fields = In(packet);
        let answer = match fields.u8()? {
            1 => Answer::Hello(fields.u32()?),
            2 => Answer::Joined(Place {
                id: fields.u64()?,
                ring: fields.text()?,
                continuity: match fields.u8()? {
                    1 => Continuity::Bytes,
                    2 => Continuity::Messages,
                    3 => Continuity::Records,
                    _ => return None,
                },
            }),
            3 => {
                let (process, confined) = (fields.u32()? as i32, fields.text()?);
                let mut state = ParserState { process, confined, prefixes: Vec::new() };
                while !fields.is_empty() {
                    state.prefixes.push(decode_prefix(&mut fields)?);
                }
                Answer::State(state)
            }
            4 => Answer::Refused(fields.text()?),
            5 => Answer::Over(fields.u64()?, fields.text()?),
            _ => return None,
        };
        fields.is_empty().then_some(answer)
    }
}

fn listed(prefix: &PrefixState) -> &[(i32, String)] {
    &prefix.readers[..prefix.readers.len().min(READERS_LISTED)]
}

/// With so many bytes of each reader's purpose at most.
fn encode_prefix(prefix: &PrefixState, purpose_bytes: usize) -> Out {
    let mut out = Out::default();
    out.text(&prefix.text).text(&prefix.base).text(&prefix.ring);
    out.u64(prefix.since).u64(prefix.given.0).u64(prefix.given.1).u64(prefix.lost);
    let readers = listed(prefix);
    out.u8(readers.len() as u8);
    for (process, purpose) in readers {
        out.u32(*process as u32).text(&purpose[..purpose.floor_char_boundary(purpose_bytes)]);
    }
    out
}

fn decode_prefix(fields: &mut In<'_>) -> Option<PrefixState> {
    Some(PrefixState {
        text: fields.text()?,
        base: fields.text()?,
        ring: fields.text()?,
        since: fields.u64()?,
        given: (fields.u64()?, fields.u64()?),
        lost: fields.u64()?,
        readers: (0..fields.u8()?).map(|_| Some((fields.u32()? as i32, fields.text()?))).collect::<Option<Vec<_>>>()?,
    })
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
