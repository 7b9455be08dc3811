//! What a message says: the facts of its head.

use super::asked::Question;
use super::head::{Head, media_type};
use super::start::StartLine;
use crate::conversation::{About, Ear, Id, Kind};
use crate::mime::parameter;

/// A fact about a message or, in HTTP/2, about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Whether it is a request or a response.
    Direction,
    /// The method of the request; also that which a response answers, as the next two.
    Method,
    /// The host, without its port.
    Host,
    /// The target.
    Url,
    /// The version.
    Protocol,
    /// The status.
    Status,
    /// The type of the body, without parameters.
    ContentType,
    /// How the body is coded.
    ContentEncoding,
    /// The program of the client.
    UserAgent,
    /// Where the client came from.
    Referer,
    /// The name of the body in Content-Disposition.
    Filename,
    /// Why clients disagree about the message.
    Ambiguous,
    /// The value that is cut, which is left out.
    Cut,
    /// The type of a frame.
    FrameType,
    /// The weight of a stream.
    Priority,
    /// By how much the peer may send more.
    Window,
    /// The size of the table of header fields.
    SizeUpdate,
    /// Why a stream or the connection ends.
    ErrorCode,
    /// The settings by their number (RFC 9113, 6.5.2).
    Setting1,
    /// Setting 2.
    Setting2,
    /// Setting 3.
    Setting3,
    /// Setting 4.
    Setting4,
    /// Setting 5.
    Setting5,
    /// Setting 6.
    Setting6,
}

const fn both(field: &'static str, buffer: &'static str, kind: Kind) -> About {
    About { field: [field; 2], buffer: [buffer; 2], kind }
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        both("http.direction", "", Kind::Text),
        About { field: ["http.http_method"; 2], buffer: ["http.method", ""], kind: Kind::Text },
        About { field: ["http.hostname"; 2], buffer: ["http.host", ""], kind: Kind::Text },
        About { field: ["http.url"; 2], buffer: ["http.uri", ""], kind: Kind::Text },
        both("http.protocol", "http.protocol", Kind::Text),
        About { field: ["http.status"; 2], buffer: ["", "http.stat_code"], kind: Kind::Number },
        both("http.http_content_type", "http.content_type", Kind::Text),
        both("http.content_encoding", "", Kind::Text),
        About { field: ["http.http_user_agent"; 2], buffer: ["http.user_agent", ""], kind: Kind::Text },
        About { field: ["http.http_refer"; 2], buffer: ["http.referer", ""], kind: Kind::Text },
        both("http.filename", "file.name", Kind::Text),
        both("http.ambiguous", "", Kind::Text),
        both("http.cut", "", Kind::Text),
        both("", "http2.frametype", Kind::Number),
        both("", "http2.priority", Kind::Number),
        both("", "http2.window", Kind::Number),
        both("", "http2.size_update", Kind::Number),
        both("", "http2.errorcode", Kind::Number),
        both("", "http2.settings", Kind::Number),
        both("", "http2.settings", Kind::Number),
        both("", "http2.settings", Kind::Number),
        both("", "http2.settings", Kind::Number),
        both("", "http2.settings", Kind::Number),
        both("", "http2.settings", Kind::Number),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// The settings with a fact, by their number less 1.
pub const SETTINGS: [Fact; 6] =
    [Fact::Setting1, Fact::Setting2, Fact::Setting3, Fact::Setting4, Fact::Setting5, Fact::Setting6];

/// What a message says beside its fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notes<'a> {
    /// Why clients disagree about the message; empty: they agree.
    pub ambiguous: &'a str,
    /// The value that is cut, which is left out; `None`: the head is whole.
    pub cut: Option<&'static str>,
}

/// Tells the facts of a head. `question`: the request that the message is or answers, as far as it is known.
pub fn tell(id: Id, head: &Head<'_>, notes: Notes<'_>, question: Question<'_>, ear: &mut impl Ear<Fact>) {
    let (direction, protocol, status) = match head.start {
        StartLine::Request { protocol, .. } => ("request", protocol, None),
        StartLine::Response { protocol, status } => ("response", protocol, status),
    };
    let mut text = |fact: Fact, value: Option<&[u8]>| {
        if let Some(value) = value {
            ear.fact(id, fact, value);
        }
    };
    text(Fact::Direction, Some(direction.as_bytes()));
    text(Fact::Method, question.method);
    text(Fact::Host, question.host);
    text(Fact::Url, question.url);
    text(Fact::Protocol, Some(protocol).filter(|protocol| !protocol.is_empty()));
    text(Fact::ContentType, head.content_type.map(media_type));
    text(Fact::ContentEncoding, head.content_encoding);
    text(Fact::UserAgent, head.user_agent);
    text(Fact::Referer, head.referer);
    let name = head.disposition.and_then(|value| parameter(value, b"filename"));
    text(Fact::Filename, name.as_deref().filter(|name| !name.is_empty()));
    text(Fact::Ambiguous, Some(notes.ambiguous.as_bytes()).filter(|reasons| !reasons.is_empty()));
    text(Fact::Cut, notes.cut.map(str::as_bytes));
    if let Some(status) = status {
        ear.number(id, Fact::Status, status.into());
    }
}
