//! What is said at the socket of a running request: one question, one answer.

use buffer::control::Message;
use buffer::control::codec::{In, Out, Wire};
use buffer::{wire_codes, wire_enum, wire_struct};
use filter::Types;
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of these messages and of what is in the rings.
pub const PROTOCOL: u32 = 4;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is it, and which edges has it?
    Edges,
    /// Let me see what goes along this edge; all of it, where that is said, and the request waits for me.
    Watch(String, bool),
    /// Finish what has come, and end: what a first SIGINT asks for.
    Stop,
    /// Go on as this request.
    Replace(NewRequest),
}

/// A question behind the version of who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// In this version.
    Question(Question),
    /// In another one.
    OtherVersion(u32),
}

/// A request that is to take the place of the one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// Its text.
    pub source: String,
    /// What people call where the text stands.
    pub name: String,
    /// What `$x` stands for.
    pub variables: BTreeMap<String, String>,
}

/// An edge that can be watched, or all edges of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLine {
    /// Its shortest name.
    pub name: String,
    /// Its number.
    pub number: String,
    /// What goes along it.
    pub types: Types,
    /// The filter that gives, as people know it.
    pub label: String,
}

/// The stages of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageLines {
    /// For how long there have been stages.
    pub age: Duration,
    /// In the order of their threads; none where the request runs on one.
    pub stages: Vec<StageLine>,
    /// Threads of stages behind these, for which an answer has no room; 0: none.
    pub left_out: u32,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageLine {
    /// Its filters, as people know them.
    pub filters: String,
    /// Its threads; several where it has shares of the flows.
    pub threads: Vec<ThreadLine>,
}

/// A thread of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLine {
    /// What it does now.
    pub doing: Doing,
    /// Blocks that it read, or got from other stages.
    pub blocks: u64,
    /// The channels that it gets blocks from.
    pub channels: Vec<ChannelLine>,
}

/// What is in a channel to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLine {
    /// The thread that gives, from 1.
    pub from: u32,
    /// Parcels that wait in it.
    pub full: u64,
    /// Parcels that it has.
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

/// Where copies are to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// The socket of the ring's keeper.
    pub path: String,
    /// What is in it.
    pub types: Types,
    /// Its edge's number.
    pub number: String,
    /// The filter that gives, as people know it.
    pub label: String,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request's text, its edges and its stages.
    Edges(String, Vec<EdgeLine>, StageLines),
    /// A ring with what goes along the edge.
    Ring(RingPlace),
    /// It goes on as was asked.
    Replaced,
    /// It is about to end.
    Stopping,
    /// Not done, and why; the request or the name is wrong.
    Wrong(String),
    /// Not done, and why: it would not work.
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
