//! What is said at the socket of a running request: one question, one answer, each a packet of texts behind their lengths.

use buffer::shared::packets;
use filter::{Type, Types};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

/// Version of these messages and of what is in the rings.
pub const PROTOCOL: &str = "streamline-request-1";

/// Longest packet in bytes.
pub const MESSAGE_BYTES: usize = 128 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is it, and which edges has it?
    Edges,
    /// Let me see what goes along this edge.
    Watch(String),
    /// Finish what has come, and end: what a first SIGINT asks for.
    Stop,
    /// Go on as this request.
    Replace {
        /// Its text.
        source: String,
        /// What people call where the text stands.
        name: String,
        /// What `$x` stands for.
        variables: BTreeMap<String, String>,
    },
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
    /// The request's text and its edges.
    Edges(String, Vec<EdgeLine>),
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

fn encode<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut packet = Vec::new();
    for text in texts {
        packet.extend((text.len() as u32).to_le_bytes());
        packet.extend(text.as_bytes());
    }
    packet
}

fn decode(mut packet: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while !packet.is_empty() {
        let (len, rest) = packet.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        packet = rest;
    }
    Some(texts)
}

fn types_text(types: Types) -> String {
    types.iter().map(Type::name).collect::<Vec<_>>().join(",")
}

fn types_of(text: &str) -> Option<Types> {
    let one = |name: &str| Type::ALL.into_iter().find(|known| known.name() == name);
    let types = text.split(',').filter(|name| !name.is_empty()).map(one).collect::<Option<Vec<_>>>()?;
    Some(Types::of(&types))
}

impl Question {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Question::Edges => encode([PROTOCOL, "edges"]),
            Question::Stop => encode([PROTOCOL, "stop"]),
            Question::Watch(edge) => encode([PROTOCOL, "watch", edge]),
            Question::Replace { source, name, variables } => {
                let variables = variables.iter().flat_map(|(name, value)| [&**name, &**value]);
                encode([PROTOCOL, "replace", source, name].into_iter().chain(variables))
            }
        }
    }

    /// From a packet; why not, where it is none.
    pub fn decode(packet: &[u8]) -> Result<Question, String> {
        let texts = decode(packet).unwrap_or_default();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        match texts[..] {
            [PROTOCOL, "edges"] => Ok(Question::Edges),
            [PROTOCOL, "stop"] => Ok(Question::Stop),
            [PROTOCOL, "watch", edge] => Ok(Question::Watch(edge.into())),
            [PROTOCOL, "replace", source, name, ref variables @ ..] if variables.len().is_multiple_of(2) => {
                let (variables, _) = variables.as_chunks::<2>();
                let variables = variables.iter().map(|[name, value]| (name.to_string(), value.to_string()));
                Ok(Question::Replace { source: source.into(), name: name.into(), variables: variables.collect() })
            }
            [PROTOCOL, ..] | [] => Err("nobody asks that".into()),
            [other, ..] => Err(format!("the request runs in a program that speaks {PROTOCOL}, not `{other}`")),
        }
    }
}

impl Answer {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Answer::Edges(request, edges) => {
                let types: Vec<String> = edges.iter().map(|edge| types_text(edge.types)).collect();
                let lines = edges.iter().zip(&types);
                let lines = lines.flat_map(|(edge, types)| [&*edge.name, &*edge.number, &**types, &*edge.label]);
                encode(["edges", request].into_iter().chain(lines))
            }
            Answer::Ring(ring) => encode(["ring", &ring.path, &types_text(ring.types), &ring.number, &ring.label]),
            Answer::Replaced => encode(["replaced"]),
            Answer::Stopping => encode(["stopping"]),
            Answer::Wrong(text) => encode(["wrong", text]),
            Answer::Failed(text) => encode(["failed", text]),
        }
    }

    /// From a packet; `None` where it is none.
    pub fn decode(packet: &[u8]) -> Option<Answer> {
        let texts = decode(packet)?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Some(match texts[..] {
            ["edges", request, ref edges @ ..] => {
                let (lines, []) = edges.as_chunks::<4>() else { return None };
                let line = |[name, number, types, label]: &[&str; 4]| {
                    let (name, number, label) = (name.to_string(), number.to_string(), label.to_string());
                    Some(EdgeLine { name, number, types: types_of(types)?, label })
                };
                Answer::Edges(request.into(), lines.iter().map(line).collect::<Option<_>>()?)
            }
            ["ring", path, types, number, label] => Answer::Ring(RingPlace {
                path: path.into(),
                types: types_of(types)?,
                number: number.into(),
                label: label.into(),
            }),
            ["replaced"] => Answer::Replaced,
            ["stopping"] => Answer::Stopping,
            ["wrong", text] => Answer::Wrong(text.into()),
            ["failed", text] => Answer::Failed(text.into()),
            _ => return None,
        })
    }
}

/// Receives a packet; `None` where the other side closed.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    let mut packet = vec![0; MESSAGE_BYTES];
    let received = packets::receive(socket, &mut packet)?;
    Ok(received.map(|(len, _no_fds_are_expected)| {
        packet.truncate(len);
        packet
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let variables = [("x".to_string(), "a=b | c".to_string())].into();
        let replace = Question::Replace { source: "pcap $x".into(), name: "day.srl".into(), variables };
        for question in
            [Question::Edges, Question::Stop, Question::Watch("tcp".into()), Question::Watch(String::new()), replace]
        {
            assert_eq!(Question::decode(&question.encode()), Ok(question));
        }
        let (types, label) = (Types::of(&[Type::Bytes, Type::Message]), "tcp\n|".to_string());
        let edge = EdgeLine { name: "tcp".into(), number: "2".into(), types, label: label.clone() };
        for answer in [
            Answer::Edges("pcap x | tcp".into(), vec![edge.clone(), edge]),
            Answer::Edges(String::new(), vec![]),
            Answer::Ring(RingPlace { path: "/x".into(), types: Types::NONE, number: "1.2".into(), label }),
            Answer::Replaced,
            Answer::Stopping,
            Answer::Wrong("ä".into()),
            Answer::Failed(String::new()),
        ] {
            let packet = answer.encode();
            assert_eq!(Answer::decode(&packet), Some(answer));
            for end in 0..packet.len() {
                // Nothing but a whole one is one, unless an edge was cut off.
                assert!(!matches!(Answer::decode(&packet[..end]), Some(Answer::Ring(_))), "{end} bytes");
            }
        }
    }

    #[test]
    fn other_versions_are_told_apart() {
        assert!(Question::decode(&encode(["streamline-request-0", "edges"])).unwrap_err().contains("speaks"));
        for packet in [&b""[..], b"\xff\xff\xff\xff", b"\x01\0\0\0\xff"] {
            assert_eq!(Question::decode(packet), Err("nobody asks that".into()));
        }
    }
}
