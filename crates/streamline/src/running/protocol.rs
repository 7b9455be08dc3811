//! The messages at the socket of a running request: one question, one answer.

use buffer::control::Message;
use buffer::control::codec::{In, Out, Wire};
use buffer::{wire_codes, wire_enum, wire_struct};
use filter::Types;
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of these messages and of the blocks in the rings.
pub const PROTOCOL: u32 = 4;

/// A question to a running request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks for the request's text, edges and stages.
    Edges,
    /// Asks to watch this edge. `true`: to see all of it; the request then waits for this reader.
    Watch(String, bool),
    /// Asks to finish what has come and end, as a first SIGINT does.
    Stop,
    /// Asks to go on as this request.
    Replace(NewRequest),
}

/// A question behind the asker's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Of this version.
    Question(Question),
    /// Of another version.
    OtherVersion(u32),
}

/// A request that is to replace the running one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// Its text.
    pub source: String,
    /// The name of the text's place, for people.
    pub name: String,
    /// The values of variables such as `$x`.
    pub variables: BTreeMap<String, String>,
}

/// An edge that can be watched, or all edges of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLine {
    /// Its shortest name.
    pub name: String,
    /// Its number.
    pub number: String,
    /// The types of the blocks that go along it.
    pub types: Types,
    /// The label of the filter that gives, for people.
    pub label: String,
}

/// The stages of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageLines {
    /// How long the stages have run.
    pub age: Duration,
    /// The stages, in the order of their threads; empty if the request runs on one thread.
    pub stages: Vec<StageLine>,
    /// Threads of further stages for which the answer has no room.
    pub left_out: u32,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLine {
    /// Its filters, for people.
    pub filters: String,
    /// Its threads; several if the flows are shared out among them.
    pub threads: Vec<ThreadLine>,
}

/// A thread of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLine {
    /// Its present state.
    pub doing: Doing,
    /// Blocks that it has read, or got from other stages.
    pub blocks: u64,
    /// The channels that bring it blocks.
    pub channels: Vec<ChannelLine>,
}

/// The state of a channel to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLine {
    /// The thread that gives, from 1.
    pub from: u32,
    /// Parcels that wait in it.
    pub full: u64,
    /// Parcels that it has room for.
    pub room: u64,
}

/// What a thread of a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs filters, or looks for blocks.
    Awake,
    /// It sleeps until blocks come.
    Asleep,
    /// It sleeps until the stage behind it has room.
    Waiting,
    /// It has ended.
    Ended,
}

/// A ring of copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// The socket of the ring's keeper.
    pub path: String,
    /// The types of its blocks.
    pub types: Types,
    /// The number of its edge.
    pub number: String,
    /// The label of the filter that gives, for people.
    pub label: String,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request's text, its edges and its stages.
    Edges(String, Vec<EdgeLine>, StageLines),
    /// The ring with the edge's blocks.
    Ring(RingPlace),
    /// The request was replaced as asked.
    Replaced,
    /// The request is about to end.
    Stopping,
    /// Not done, and why: the request or the name is wrong.
    Wrong(String),
    /// Not done, and why: it did not work.
    Failed(String),
}

wire_struct!(EdgeLine { name, number, types, label });
wire_struct!(StageLines { age, stages, left_out });
wire_struct!(StageLine { filters, threads });
wire_struct!(ThreadLine { doing, blocks, channels });
wire_struct!(ChannelLine { from, full, room });
wire_codes!(Doing { Awake = 1, Asleep = 2, Waiting = 3, Ended = 4 });
wire_struct!(RingPlace { path, types, number, label });
wire_struct!(NewRequest { source, name, variables });
wire_enum!(Question { 1 = Edges, 2 = Watch(edge, lossless), 3 = Stop, 4 = Replace(request) });
wire_enum!(Answer { 1 = Edges(request, edges, stages), 2 = Ring(ring), 3 = Replaced, 4 = Stopping, 5 = Wrong(text), 6 = Failed(text) });

impl Wire for Asked {
    fn put(&self, out: &mut Out) {
        match self {
            Asked::Question(question) => {
                PROTOCOL.put(out);
                question.put(out);
            }
            Asked::OtherVersion(version) => version.put(out),
        }
    }

    fn get(fields: &mut In<'_>) -> Option<Asked> {
        match u32::get(fields)? {
            PROTOCOL => Question::get(fields).map(Asked::Question),
            other => {
                fields.0 = &[];
                Some(Asked::OtherVersion(other))
            }
        }
    }
}

impl Message for Asked {
    const BYTES: usize = 128 << 10;
}

impl Message for Answer {
    const BYTES: usize = 128 << 10;
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::Type;

    #[test]
    fn what_is_said_is_heard() {
        let variables = [("x".to_string(), "a=b | c".to_string())].into();
        let replace = NewRequest { source: "pcap $x".into(), name: "day.srl".into(), variables };
        let (tcp, none) = (Question::Watch("tcp".into(), true), Question::Watch(String::new(), false));
        for question in [Question::Edges, Question::Stop, tcp, none, Question::Replace(replace)] {
            let asked = Asked::Question(question);
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
        }
        let (types, label) = (Types::of(&[Type::Bytes, Type::Message]), "tcp\n|".to_string());
        let edge = EdgeLine { name: "tcp".into(), number: "2".into(), types, label: label.clone() };
        let threads = [Doing::Awake, Doing::Asleep, Doing::Waiting, Doing::Ended].map(|doing| ThreadLine {
            doing,
            blocks: u64::MAX,
            channels: vec![ChannelLine { from: 1, full: 2, room: 16 }; 2],
        });
        let stage = StageLine { filters: "tcp, http".into(), threads: threads.into() };
        let stages = StageLines { age: Duration::from_millis(1500), stages: vec![stage], left_out: 7 };
        for answer in [
            Answer::Edges("pcap x | tcp".into(), vec![edge.clone(), edge], stages),
            Answer::Edges(String::new(), vec![], StageLines::default()),
            Answer::Ring(RingPlace { path: "/x".into(), types: Types::NONE, number: "1.2".into(), label }),
            Answer::Replaced,
            Answer::Stopping,
            Answer::Wrong("ä".into()),
            Answer::Failed(String::new()),
        ] {
            let packet = answer.encode();
            assert!((0..packet.len()).all(|end| Answer::decode(&packet[..end]).is_none()));
            assert_eq!(Answer::decode(&packet), Some(answer));
        }
    }

    #[test]
    fn other_versions_are_told_apart() {
        assert_eq!(Asked::decode(b"\x01\0\0\0whatever"), Some(Asked::OtherVersion(1)));
        for packet in [&b""[..], b"\xff\xff", b"\x04\0\0\0", b"\x04\0\0\0\x01\x01"] {
            assert_eq!(Asked::decode(packet), None);
        }
    }
}
