//! Named rings in requests, shared with other requests, `pipe read` or `pipe write`, and other programs.
//!
//! - `ring/source.rs`: reads a ring, at the beginning of a chain. May start before the writer.
//! - `ring/sink.rs`: writes a ring, behind other filters.
//! - `ring/process.rs`: both, for filters that run in a process of their own; `ring/link.rs` is between the two.
//!
//! Each block has a [`ring_header`](filter::ring_header) in front of it in the ring. It carries the streams, messages
//! and link types to the reader. The ring's keeper knows the type of the blocks and the length of the header.

mod link;
pub mod process;
mod sink;
mod source;

use buffer::keeper::client::Named;
use buffer::keeper::content::Content;
use buffer::keeper::place;
use buffer::ring::OnFull;
use buffer::ring::memory::Geometry;
use filter::param::Value;
use filter::prelude::*;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The kind `ring` behind other filters.
pub static KIND: Kind = Kind::new("ring", "writes a named ring for other requests and programs; begins a chain: reads one", sink::make)
    .also(&["pipe", "channel", "queue"])
    .help(
        "`pcap x.pcap | tcp | ring web` and, in another process, `ring web | http | files dir=out` do together what one request \
         does. The ring is one of `streamline pipe create`, or is made, and then goes with its last user. A name with a `/` in it \
         is the path of a keeper's socket, by which other users' rings are found; the ring's policy says who may read, hold and \
         write it.\n\
         \n\
         A ring carries one type: what its first user says. A reader that comes before the first writer has to say `type=`. The \
         second user gets an error where it has another. What `streamline pipe write` and C programs write is `bytes`, one \
         stream; `streamline pipe read` and C programs get the bytes of blocks, whatever their type.\n\
         \n\
         The writer waits for a first reader, and for readers with on-full=wait; it ends when all readers have left. A writer \
         with on-full=drop-newest waits for no reader: what finds no room is dropped and counted. For a reader on-full= is what it is \
         for `streamline pipe read`: with `overwrite` and `shared` it is overtaken, and counts what it lost. A reader ends with \
         the writer. If the writer dies, the reader gives what there is, and the request fails then.\n\
         \n\
         Of the interface of a frame the link type goes along. A ring of kind c has no blocks: it carries `bytes` only, of one \
         stream after the other. Pieces of streams and messages that are longer than a quarter of the ring are cut; frames and \
         records that are longer than a block of the ring are dropped.",
    )
    .params(PARAMS)
    .sink()
    .restarts()
    .one_type("type")
    .meets(meeting)
    .first(&SOURCE);

/// The kind `ring` at the beginning of a chain.
static SOURCE: Kind = Kind::new("ring", "reads a named ring", source::make)
    .params(PARAMS)
    .source(Type::Bytes)
    .gives_named("type")
    .completes(find_type)
    .meets(meeting)
    .runs_in(Spaces::APP);

const PARAMS: &[Param] = &[
    Param::new("ring", ParamType::Text, "the ring").required().main(),
    Param::new("type", ParamType::Choice(&Type::NAMES), "type of its blocks; if not given, as its first user says"),
    Param::new(
        "on-full",
        ParamType::Choice(&["wait", "drop-newest", "overwrite", "shared"]),
        "what happens when the ring is full; a writer can wait or drop",
    )
    .default("wait"),
    Param::new("size", ParamType::Size, "bytes of a ring that has to be made; 1M if not given"),
];

/// The path of the socket of the ring's keeper.
fn meeting(params: &Params) -> Option<PathBuf> {
    place::socket(params.text("ring")?).ok()
}

/// Asks the ring for its type if the request does not give one.
fn find_type(params: &mut Params) -> Result<(), ParamError> {
    let named = named(params)?;
    let stated = params.text("type").and_then(Type::of_name);
    let carried = match named.state() {
        Ok(state) => state.written.content.map(type_of),
        Err(error) if is_absent(&error) || stated.is_some() => None,
        Err(error) => return Err(failed(params, error)),
    };
    match (stated, carried) {
        (Some(stated), Some(carried)) if stated != carried => Err(ParamError::new(
            "type",
            format!("the ring `{}` carries {}, not {}", name(params), carried.name(), stated.name()),
        )),
        (None, None) => {
            Err(ParamError::new("ring", format!("nobody has said yet what the ring `{}` carries", name(params)))
                .with_help(
                    "a reader that comes before the first writer says it: type=frame, packet, bytes, message or record",
                ))
        }
        (None, Some(carried)) => {
            params.set("type", Value::Text(carried.name().into()));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn name(params: &Params) -> &str {
    params.text("ring").unwrap_or_default()
}

fn named(params: &Params) -> Result<Named, ParamError> {
    Named::at(name(params)).map_err(|error| ParamError::new("ring", error.to_string()))
}

/// The `on-full` behaviour that a reader asks for.
fn contract(params: &Params) -> OnFull {
    match params.text("on-full") {
        Some("drop-newest") => OnFull::DropNewest,
        Some("overwrite") => OnFull::Overwrite,
        Some("shared") => OnFull::Shared,
        _ => OnFull::Wait,
    }
}

fn content_of(one: Type) -> Content {
    match one {
        Type::Frame => Content::Frame,
        Type::Packet => Content::Packet,
        Type::Bytes => Content::Bytes,
        Type::Message => Content::Message,
        Type::Record => Content::Record,
    }
}

fn type_of(content: Content) -> Type {
    match content {
        Content::Frame => Type::Frame,
        Content::Packet => Type::Packet,
        Content::Bytes => Type::Bytes,
        Content::Message => Type::Message,
        Content::Record => Type::Record,
    }
}

/// How gaps between blocks of this type are detected.
fn continuity_of(one: Type) -> crate::parser::Continuity {
    crate::parser::Continuity::of(Types::of(&[one])).unwrap_or(crate::parser::Continuity::Frames)
}

/// Whether the error means that the ring does not exist, or has just gone.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotConnected, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | NotConnected)
}

fn failed(params: &Params, error: io::Error) -> ParamError {
    let text = format!("the ring `{}`: {error}", name(params));
    match error.kind() {
        io::ErrorKind::InvalidInput => ParamError::new("ring", text),
        _ => ParamError { key: Some("ring"), ..ParamError::system(text) },
    }
}

/// Opens a ring; creates it if it does not exist.
fn open<T>(params: &Params, env: &Env, connect: impl Fn(&Named) -> io::Result<T>) -> Result<T, ParamError> {
    let named = named(params)?;
    let first = connect(&named);
    if !first.as_ref().is_err_and(is_absent) {
        return first.map_err(|error| failed(params, error));
    }
    // If another request creates the ring at the same time, both use that one.
    let made = make_ring(params, env);
    connect(&named).map_err(|error| match made {
        Err(error) => error,
        Ok(()) => failed(params, error),
    })
}

/// A notice if `size=` was given but the ring exists with another size; `None`: no notice.
fn size_note(params: &Params) -> Option<String> {
    let size = params.number("size")?;
    let has = named(params).ok()?.state().ok()?.geometry;
    let wanted = Geometry::new(has.kind, size, 0).payload_bytes;
    let name = name(params);
    (has.payload_bytes != wanted).then(|| {
        format!("the ring `{name}` was there already, with {} bytes: size= changes nothing", has.payload_bytes)
    })
}

/// Starts a process that keeps a new ring until its last user leaves.
fn make_ring(params: &Params, env: &Env) -> Result<(), ParamError> {
    let name = name(params);
    let wrong = |why: String| ParamError {
        key: Some("ring"),
        ..ParamError::system(format!("cannot make the ring `{name}`: {why}"))
    };
    let [program, arguments @ ..] = &*env.make_ring else {
        return Err(
            wrong("this program keeps none".into()).with_help(format!("`streamline pipe create {name}` makes one"))
        );
    };
    let mut command = Command::new(program);
    command.args(arguments).args([name, "while-used=yes"]);
    if let Some(size) = params.number("size") {
        command.arg(format!("size={size}"));
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| wrong(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(wrong(String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("error: ").to_string()))
}
