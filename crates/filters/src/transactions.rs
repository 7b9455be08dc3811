//! Joins requests with their responses: one record for both.
//!
//! This file matches them and limits how long a request waits; `transactions/shape.rs` makes the record. Neither knows
//! HTTP, DNS or TLS: a field `direction` or `type` tells requests from responses.

mod shape;

use crate::parts::class_table::ClassTable;
use crate::parts::kept::{Budget, Charge, Shortener};
use base::limits::{META_KEPT_BYTES, TRANSACTION_IDLE_NS, TRANSACTIONS_WAITING};
use filter::prelude::*;
use filter::record::schema_id;
use sha2::{Digest, Sha256};
use shape::{Body, Part, Shape, is_alone, schema_of};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What `transactions` is.
pub static KIND: Kind = Kind::new("transactions", "joins requests with their responses", make)
    .also(&["pairs", "rtt", "latency", "srt"])
    .help(
        "Takes what `http`, `dns` or `tls` gives, and gives one record for each request with its response: the fields of both, \
         `src_ip` for the client, `answered`, and `latency_us` from the first byte of the request to the first one of the \
         response. What both say is as the response says it. A request without a response is given after `timeout`, a \
         response whose request was not seen is given alone. The certificate of a TLS server joins the two hellos: up to TLS \
         1.2 they wait for it, for `timeout` at most. That of a client is left out and counted.\n\n\
         Of messages, such as those of `http`, the record has the bytes of both bodies (`http.length` of the response, \
         `http.request_length`), `http.state` (complete, gap or truncated), and a list `files` with a row for each body: \
         `direction` (to_server or to_client), `content_type`, `filename` (of Content-Disposition), `size`, `missing` bytes, `state`, `start`, `end`, and with \
         `hash=yes` `sha256`. Responses that announce another one (100 Continue) are counted.\n\n\
         Each mail of `smtp`, and each command and file of `smb`, has a record of its own.\n\n\
         256 requests of a connection wait at most, and 64 MiB of metadata of all; the oldest of more is given without its \
         response, and metadata beyond that is left out and counted.",
    )
    .params(&[
        Param::new("timeout", ParamType::Duration, "give up a request after this long without a response").default("60s"),
        Param::new("hash", ParamType::Flag, "put the SHA-256 of each body into its record").default("no"),
    ])
    .takes(&[Type::Record, Type::Message])
    .gives(Type::Record)
    .mode(Mode::Serial)
    .keeps_names()
    .names_fields(|_, schemas| check(schemas))
    .examples(&[
        Example { request: "pcap dns.pcap | dns | transactions | fields src_ip dns.rrname dns.rcode latency_us", output: DNS },
        Example { request: "pcap web.pcap | http | transactions | by http.status sum=http.length", output: WEB },
    ]);

const DNS: &str = "\
src_ip\tdns.rrname\tdns.rcode\tlatency_us
10.16.1.11\tsuricata.io\tNOERROR\t68429
10.16.1.11\tsuricata.io\tNOERROR\t66274
";
const WEB: &str = "{\"http\":{\"status\":200},\"count\":10,\"sum\":{\"http\":{\"length\":28}}}\n";

const _: () = assert!(TRANSACTIONS_WAITING == 256 && META_KEPT_BYTES == 64 << 20, "the manual says so");

/// The schema of the records. `schemas`: those of the input.
fn check(schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    match schemas {
        [] => Ok(Vec::new()),
        // Whether messages or records come is unknown here; the schema with more fields does no harm.
        [schema] => schema_of(schema, schema.field("http.url").is_some() || is_alone(schema))
            .map(|schema| vec![schema])
            .ok_or_else(|| {
                ParamError::of_request(format!("records of `{}` are no requests and responses", schema.name))
                    .with_help("`http`, `dns` and `tls` give some")
            }),
        _ => Err(ParamError::of_request("records of several kinds come here")
            .with_help("give each kind its own: { dns | transactions + tls | transactions }")),
    }
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Transactions {
        of_messages: env.input.has(Type::Message),
        hash: params.flag("hash"),
        timeout: params.number("timeout").unwrap_or(TRANSACTION_IDLE_NS),
        shortener: Shortener::new(env),
        budget: Budget::new(META_KEPT_BYTES),
        shapes: Vec::new(),
        connections: ClassTable::default(),
        due: BinaryHeap::new(),
        leaving: Vec::new().into_iter(),
        is_ending: false,
    }))
}

struct Transactions {
    of_messages: bool,
    hash: bool,
    timeout: u64,
    shortener: Shortener,
    budget: Budget,
    shapes: Vec<Shape>,
    /// Key: the class of a connection's direction 0.
    connections: ClassTable<Connection>,
    /// Connections in which something waits, with the time of the next check, earliest first.
    due: BinaryHeap<Reverse<(u64, Class)>>,
    /// Records still to be given at the end.
    leaving: std::vec::IntoIter<(Class, Left)>,
    is_ending: bool,
}

#[derive(Default)]
struct Connection {
    flow_id: u64,
    waiting: VecDeque<Half>,
    /// An answered request that a certificate may follow.
    held: Option<Left>,
    /// Messages being read, by direction.
    open: [Option<Half>; 2],
    /// The connection is in `due`.
    is_due: bool,
}

/// A record to give: a response with its request, or either alone.
struct Left {
    request: Option<Half>,
    last: Half,
}

struct Half {
    row: Vec<u8>,
    direction: u8,
    _charge: Charge,
    begin: u64,
    /// When it came, by the clock.
    seen: u64,
    body: Body,
}

impl Connection {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_none() && self.open.iter().all(Option::is_none)
    }

    /// Everything kept. A message being read lacks its end.
    fn left(self, of_messages: bool) -> impl Iterator<Item = Left> {
        let open = self.open.into_iter().flatten().map(move |mut half| {
            half.body.is_truncated |= of_messages;
            half
        });
        let alone = self.waiting.into_iter().chain(open);
        self.held.into_iter().chain(alone.map(|last| Left { request: None, last }))
    }
}

/// Records given at once.
const PIECE: usize = 64;

fn connection_of(class: Class) -> Class {
    Class::of_stream(class.connection(), 0)
}

impl Transactions {
    /// The index of a row's shape.
    fn shape(&mut self, row: &[u8]) -> Option<usize> {
        let id = schema_id(row)?;
        if let Some(at) = self.shapes.iter().position(|shape| shape.schema.id() == id) {
            return Some(at);
        }
        self.shapes.push(Shape::new(self.shortener.schema(row)?, self.of_messages)?);
        Some(self.shapes.len() - 1)
    }

    fn block(&mut self, block: &Descriptor, cx: &mut Context<'_>) {
        let direction = usize::from(block.class.direction());
        if !self.of_messages || block.has(Flags::META) {
            return self.begin(block, direction, cx);
        }
        let open =
            self.connections.get_mut(connection_of(block.class)).and_then(|known| known.open[direction].as_mut());
        // The rest of a message whose request was already answered, or whose metadata had no room.
        let Some(half) = open else { return };
        half.add(block, cx.rings.bytes(block));
        if block.has(Flags::LAST) {
            self.end(block.class, block.time, cx);
        }
    }

    /// Reads a record, or the metadata at the beginning of a message.
    fn begin(&mut self, block: &Descriptor, direction: usize, cx: &mut Context<'_>) {
        let Some(at) = self.shape(cx.rings.bytes(block)) else { return cx.drop(1, "no request or response") };
        let bytes = self.shortener.shorten(cx.rings.bytes(block), cx.counters);
        let Some(flow_id) = Row::new(self.shapes[at].schema, bytes).map(|row| row.number("flow_id").unwrap_or(0))
        else {
            return cx.drop(1, "no request or response");
        };
        let Some(charge) = self.budget.take(bytes.len(), cx.counters) else { return };
        let hash = (self.hash && self.of_messages).then(Sha256::new);
        let body = Body { start: block.time, end: block.time, hash, ..Body::default() };
        let mut half = Half {
            row: bytes.to_vec(),
            direction: block.class.direction(),
            _charge: charge,
            begin: block.time,
            seen: cx.now,
            body,
        };
        half.add(block, &[]);
        self.leave_other(block.class, flow_id, block.time, cx);
        let Some(known) = self.connections.get_or_insert(connection_of(block.class), Connection::default) else {
            return cx.drop(1, "no stream class");
        };
        known.flow_id = flow_id;
        let before = known.open[direction].replace(half);
        if let Some(mut before) = before {
            before.body.is_truncated = true;
            self.settle(block.class, before, block.time, cx);
        }
        if !self.of_messages || block.has(Flags::LAST) {
            self.end(block.class, block.time, cx);
        }
    }

    /// Gives up an earlier connection that had this class.
    fn leave_other(&mut self, class: Class, flow_id: u64, time: u64, cx: &mut Context<'_>) {
        let connection = connection_of(class);
        if self.connections.get_mut(connection).is_none_or(|known| known.flow_id == flow_id) {
            return;
        }
        let Some(known) = self.connections.remove(connection) else { return };
        for left in known.left(self.of_messages) {
            self.give_left(left, class, time, cx);
        }
    }

    /// A message of this direction ended.
    fn end(&mut self, class: Class, time: u64, cx: &mut Context<'_>) {
        let known = self.connections.get_mut(connection_of(class));
        let half = known.and_then(|known| known.open[usize::from(class.direction())].take());
        if let Some(half) = half {
            self.settle(class, half, time, cx);
        }
    }

    /// Queues a request, or matches a response.
    fn settle(&mut self, class: Class, half: Half, time: u64, cx: &mut Context<'_>) {
        let Some(at) = self.shape(&half.row) else { return };
        let Some(row) = Row::new(self.shapes[at].schema, &half.row) else { return };
        let connection = connection_of(class);
        if self.shapes[at].is_alone() {
            self.give([Some(&half), None, None], at, class, time, cx);
            self.connections.remove(connection);
            return;
        }
        let Some(known) = self.connections.get_mut(connection) else { return };
        if self.shapes[at].is_request(&row) {
            known.waiting.push_back(half);
            if !std::mem::replace(&mut known.is_due, true) {
                self.wait(connection, cx);
            }
            let Some(known) = self.connections.get_mut(connection) else { return };
            if known.waiting.len() > TRANSACTIONS_WAITING
                && let Some(oldest) = known.waiting.pop_front()
            {
                cx.count("requests with too many others waiting behind them", 1);
                self.give_left(Left { request: None, last: oldest }, class, time, cx);
            }
            return;
        }
        if self.shapes[at].is_certificate(&row) {
            return self.certificate(class, &half, at, time, cx);
        }
        if self.shapes[at].is_interim(&row) {
            return cx.count("interim responses", 1);
        }
        let is_asked = |shape: &Shape, half: &Half| {
            Row::new(shape.schema, &half.row).is_some_and(|request| shape.is_answer(&request, &row))
        };
        let found = known.waiting.iter().position(|half| is_asked(&self.shapes[at], half));
        let request = match found {
            Some(place) => known.waiting.remove(place),
            // Answered before the request ended.
            None => {
                let other = &mut known.open[1 - usize::from(class.direction())];
                let mut early = other.take_if(|half| is_asked(&self.shapes[at], half));
                if let Some(half) = &mut early {
                    half.body.is_truncated = self.of_messages;
                }
                early
            }
        };
        if self.shapes[at].awaits_certificate(&row) {
            let must_wait = !std::mem::replace(&mut known.is_due, true);
            if let Some(before) = known.held.replace(Left { request, last: half }) {
                self.give_left(before, class, time, cx);
            }
            if must_wait {
                self.wait(connection, cx);
            }
            return;
        }
        self.give([request.as_ref(), Some(&half), None], at, class, time, cx);
        if self.connections.get_mut(connection).is_some_and(|known| !known.is_due && known.is_empty()) {
            self.connections.remove(connection);
        }
    }

    /// A certificate belongs to the hellos before it if the answering side sent it; otherwise it is a client's or
    /// late.
    fn certificate(&mut self, class: Class, half: &Half, at: usize, time: u64, cx: &mut Context<'_>) {
        let known = self.connections.get_mut(connection_of(class));
        let held = known.and_then(|known| known.held.take_if(|held| held.last.direction == class.direction()));
        let Some(Left { request, last }) = held else { return cx.count("certificates of no answer", 1) };
        self.give([request.as_ref(), Some(&last), Some(half)], at, class, time, cx);
    }

    /// Schedules the check of a connection for when what came now is late.
    fn wait(&mut self, connection: Class, cx: &mut Context<'_>) {
        let due = cx.now.saturating_add(self.timeout);
        self.due.push(Reverse((due, connection)));
        cx.wake_at(due.saturating_add(1));
    }

    fn give_left(&mut self, Left { request, last }: Left, class: Class, time: u64, cx: &mut Context<'_>) {
        let Some(at) = self.shape(&last.row) else { return };
        let Some(row) = Row::new(self.shapes[at].schema, &last.row) else { return };
        let is_alone = self.shapes[at].is_alone();
        if request.is_none() && (is_alone || self.shapes[at].is_request(&row)) {
            cx.count("requests without a response", u64::from(!is_alone));
            self.give([Some(&last), None, None], at, class, time, cx);
        } else {
            self.give([request.as_ref(), Some(&last), None], at, class, time, cx);
        }
    }

    /// Gives the record of a request, response and certificate, as far as they exist.
    fn give(&mut self, halves: [Option<&Half>; 3], at: usize, class: Class, time: u64, cx: &mut Context<'_>) {
        let Transactions { shapes, of_messages, .. } = self;
        let shape = &mut shapes[at];
        let schema = shape.schema;
        let parts = halves.map(|half| half.and_then(|half| half.part(schema, *of_messages)));
        let row = shape.make(parts.each_ref().map(Option::as_ref));
        match cx.rings.append_copy(cx.own, &[row]) {
            Some(mut block) => {
                (block.time, block.class) = (time, class);
                cx.emit(block);
            }
            None => cx.drop(1, "longer than a block"),
        }
    }

    /// Gives up requests that waited too long, until enough records were given; returns whether more follow.
    fn expire(&mut self, cx: &mut Context<'_>) -> Status {
        while let Some(Reverse((due, connection))) = self.due.peek().copied().filter(|next| next.0.0 <= cx.now) {
            if cx.out.len() >= PIECE {
                return Status::More;
            }
            self.due.pop();
            let Some(known) = self.connections.get_mut(connection) else { continue };
            let timeout = self.timeout;
            let is_late = |half: &Half| half.seen.saturating_add(timeout) <= due;
            let late = known.waiting.iter().take_while(|half| is_late(half)).count();
            let late = known.waiting.drain(..late).map(|last| Left { request: None, last });
            let late: Vec<Left> = late.chain(known.held.take_if(|held| is_late(&held.last))).collect();
            let next = known.waiting.front().into_iter().chain(known.held.as_ref().map(|held| &held.last));
            match next.map(|half| half.seen).min() {
                Some(seen) => self.due.push(Reverse((seen.saturating_add(timeout), connection))),
                None => known.is_due = false,
            }
            if known.is_empty() {
                self.connections.remove(connection);
            }
            for left in late {
                self.give_left(left, connection, cx.now, cx);
            }
        }
        if let Some(Reverse((due, _))) = self.due.peek() {
            cx.wake_at(due.saturating_add(1));
        }
        Status::Done
    }
}

impl Half {
    /// Adds a block of the message; `bytes` of its body.
    fn add(&mut self, block: &Descriptor, bytes: &[u8]) {
        if !block.has(Flags::META) {
            self.body.length += u64::from(block.len);
            if let Some(hash) = &mut self.body.hash {
                hash.update(bytes);
            }
        }
        self.body.missing += u64::from(block.gap());
        self.body.is_truncated |= block.has(Flags::TRUNCATED);
        self.body.end = block.time;
    }

    fn part(&self, schema: &'static Schema, of_messages: bool) -> Option<Part<'_>> {
        let row = Row::new(schema, &self.row)?;
        Some(Part { row, begin: self.begin, body: of_messages.then_some(&self.body) })
    }
}

impl Filter for Transactions {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            self.block(block, cx);
        }
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        Ok(self.expire(cx))
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if !std::mem::replace(&mut self.is_ending, true) {
            let mut left = Vec::new();
            while let Some((class, known)) = self.connections.pop() {
                left.extend(known.left(self.of_messages).map(|one| (class, one)));
            }
            left.sort_by_key(|(class, left)| (left.last.begin, class.0));
            self.leaving = left.into_iter();
        }
        for _ in 0..PIECE {
            let Some((class, left)) = self.leaving.next() else { return Ok(Status::Done) };
            let time = left.last.begin;
            self.give_left(left, class, time, cx);
        }
        Ok(Status::More)
    }
}

#[cfg(test)]
mod tests;
