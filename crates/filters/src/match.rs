//! Passes blocks that contain a text or match a regular expression. In a stream, a match may begin in one block and end in a
//! later one.
//!
//! Tiers (the matchers are in `match/literals.rs` and `match/regex.rs`):
//! - Frames and packets are independent: each takes one search, by the fastest searcher for the patterns.
//! - A session keeps the automaton's state at the end of a stream's last block. `Matcher::advance` says what that costs.
//! - The metadata of a message comes first and passes with the first match, perhaps many batches later. The filter holds it
//!   until then, so messages become new blocks.

mod literals;
mod regex;

use crate::parts::select::are_streams;
use buffer::BlockTable;
use filter::batch::places;
use filter::prelude::*;

/// What `match` is.
pub static KIND: Kind = Kind::new("match", "passes what contains a text or matches a regular expression", make)
    .also(&["grep", "ngrep", "search", "find", "contains"])
    .help(
        "`match TEXT` looks for these bytes, `match regex=EXPRESSION` for a regular expression in the syntax of \
         Rust's regex crate, on bytes: classes such as `\\w` are ASCII, `.` is any byte but a line feed, `\\x00` is \
         a byte, `(?s)`, `(?i)` and the like work, back references do not exist. Several texts and expressions mean \
         any of them.\n\n\
         Of frames and packets it looks at each alone, headers included; to look into payload only, put `udp` or \
         `tcp` before it. Of streams and messages it looks across block boundaries, but never across bytes that are \
         missing, and passes each block in which a match ends; a match is every place where one can end, not the \
         longest. With `pass=rest` everything of a stream from its first such block on passes. What passes is a \
         stream with gaps where blocks were left out: its first block is flagged as first, missing bytes are \
         accounted for, and once anything has passed so does the stream's last block, without its bytes if it does \
         not match. Metadata of a message (of `http`: its head as a record) is not looked at, and passes with the first \
         block of the message that does: `http | match TEXT | json` is a line for each message with TEXT in its body, \
         where `length` counts what passed and `state` is `gap` where something was left out. To look into \
         heads, use `tcp | match`.\n\n\
         With `$` or `\\b` a match at the very end of a block is known only with the next, which then passes. The \
         events `matches` and `streams matched` count blocks in which a match ended and streams that had one.",
    )
    .params(&[
        Param::new("text", ParamType::List, "bytes to look for").main(),
        Param::new("regex", ParamType::List, "regular expression to look for"),
        Param::new("ignore-case", ParamType::Flag, "take ASCII letters of either case as the same").default("no"),
        Param::new("pass", ParamType::Choice(&["block", "rest"]), "what of a stream passes").default("block"),
    ])
    .takes(&[Type::Frame, Type::Packet, Type::Bytes, Type::Message])
    .mode(Mode::Session(SessionKey::Class))
    // Blocks that do not pass become a gap before the next block of the stream.
    .touches(Parts::DATA.with(Parts::METADATA), Parts::METADATA)
    .parses_payload()
    .examples(&[
        Example {
            request: "pcap browse.pcap | match \"GET /\" | count",
            output: "{\"blocks\":2,\"bytes\":1308,\"wire_bytes\":1308}\n",
        },
        // The metadata passes with the body, which was compressed.
        Example { request: "pcap brotli.pcap | http | match promos pass=rest | json", output: PROMOS_MESSAGE },
    ]);

const PROMOS_MESSAGE: &str = r#"{"timestamp":"2022-11-16T15:59:18.822459000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.217.170.68","src_port":443,"dest_ip":"172.18.38.179","dest_port":52316,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.google.com","url":"/async/newtab_promos","protocol":"HTTP/1.1","status":200,"http_content_type":"application/json","content_encoding":"br","filename":"f.txt","length":1743,"state":"complete"}}
"#;

/// Limit of all texts and expressions together, in bytes.
const PATTERN_BYTES: usize = 64 << 10;

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let (texts, expressions) = (params.list("text"), params.list("regex"));
    if texts.is_empty() && expressions.is_empty() {
        return Err(ParamError::new("text", "no text to look for").with_help("match TEXT or match regex=..."));
    }
    if texts.iter().chain(expressions).map(String::len).sum::<usize>() > PATTERN_BYTES {
        return Err(ParamError::new("text", format!("more than {PATTERN_BYTES} bytes to look for")));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ParamError::new("text", "an empty text is in everything"));
    }
    let (ignore_case, rest) = (params.flag("ignore-case"), params.text("pass") == Some("rest"));
    let streams = are_streams(env)?;
    if rest && !streams {
        return Err(ParamError::new("pass", format!("pass=rest is for streams, and {} comes", env.input))
            .with_help("put tcp or udp before it"));
    }
    Ok(match (expressions, texts, streams) {
        ([], [text], false) if !ignore_case => blocks(literals::One::new(text)),
        ([], [text], true) if !ignore_case => {
            sessions(literals::Across::new(literals::One::new(text), texts, false)?, rest, env)
        }
        (expressions, texts, false) => blocks(regex::Alone::new(expressions, texts, ignore_case)?),
        // The regex engine is the fastest searcher for several texts, too.
        ([], texts, true) => {
            let search = regex::Alone::new(&[], texts, ignore_case)?;
            sessions(literals::Across::new(search, texts, ignore_case)?, rest, env)
        }
        (expressions, texts, true) => sessions(regex::Across::new(expressions, texts, ignore_case)?, rest, env),
    })
}

/// Searches independent blocks.
trait Search: Send {
    fn is_in(&mut self, bytes: &[u8]) -> bool;
}

/// Searches bytes that come piece by piece.
trait Matcher: Send {
    /// The automaton's state between two pieces.
    type Cursor: Copy + Send;

    /// The state at the beginning of a stream.
    fn start(&self) -> Self::Cursor;

    /// The state behind missing bytes.
    fn behind_gap(&self) -> Self::Cursor;

    /// Goes on through `bytes`. `true`: a match ends in them. `last`: the stream ends behind them. Looks at each byte once,
    /// or only at both ends of a block where a faster searcher rules out a match.
    fn advance(&mut self, at: &mut Self::Cursor, bytes: &[u8], last: bool) -> bool;
}

fn blocks(search: impl Search + 'static) -> Instance {
    Instance::filter(Blocks { search })
}

fn sessions<M: Matcher<Cursor: 'static> + 'static>(matcher: M, rest: bool, env: &Env) -> Instance {
    let streams = Streams { matcher, rest };
    if env.input.has(Type::Message) {
        Instance::session_anew(SessionKey::Class, Messages { streams, held_bytes: 0 })
    } else {
        Instance::session(SessionKey::Class, streams)
    }
}

struct Blocks<S> {
    search: S,
}

impl<S: Search> Filter for Blocks<S> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        batch.keep_if_read(rings, |_, bytes| self.search.is_in(bytes));
        cx.counters.events.add("matches", u64::from(batch.count()));
        Ok(Status::Done)
    }
}

struct Streams<M> {
    matcher: M,
    rest: bool,
}

/// A stream's state.
struct Stream<P> {
    at: P,
    /// A block of the stream has passed.
    passed: bool,
    /// Bytes left out since the last block that passed, or since the stream's beginning.
    left_out: u64,
}

impl<M: Matcher<Cursor: 'static>> Streams<M> {
    fn begin(&self) -> Stream<M::Cursor> {
        Stream { at: self.matcher.start(), passed: false, left_out: 0 }
    }

    /// Decides whether the next block of a stream passes.
    fn passes(&mut self, state: &mut Stream<M::Cursor>, block: &mut Descriptor, cx: &mut Context<'_>) -> bool {
        let found = if self.rest && state.passed {
            false
        } else {
            if block.has(Flags::GAP_BEFORE) {
                state.at = self.matcher.behind_gap();
            }
            self.matcher.advance(&mut state.at, cx.rings.bytes(block), block.has(Flags::LAST))
        };
        if found {
            cx.counters.events.add("matches", 1);
            cx.counters.events.add("streams matched", u64::from(!state.passed));
        }
        state.keeps(block, found, self.rest)
    }
}

impl<M: Matcher<Cursor: 'static>> SessionFilter for Streams<M> {
    type State = Stream<M::Cursor>;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Self::State {
        self.begin()
    }

    fn run(&mut self, state: &mut Self::State, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut kept = 0;
        for place in places(batch.live()) {
            kept |= u64::from(self.passes(state, batch.block_mut(place), cx)) << place;
        }
        batch.keep(kept);
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        _state: Self::State,
        _class: Class,
        _why: Closed,
        _cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        Ok(())
    }
}

/// Searches messages. A message may begin with metadata.
struct Messages<M> {
    streams: Streams<M>,
    /// Bytes of held metadata.
    held_bytes: u64,
}

/// Limit of held metadata, in bytes, over all messages. Beyond it, messages pass without metadata.
const HELD_BYTES: u64 = 64 << 20;

/// A message's state.
struct Message<P> {
    stream: Stream<P>,
    head: Head,
}

/// The metadata of a message before its first match.
enum Head {
    /// There is no metadata, or it has passed.
    None,
    /// The metadata came in the current batch.
    Here(Descriptor),
    /// The metadata is held beyond its batch.
    Held(Descriptor),
}

impl<M> Messages<M> {
    /// Removes the metadata of a message and ends its hold.
    fn take(&mut self, head: &mut Head, rings: &BlockTable) -> Option<Descriptor> {
        match std::mem::replace(head, Head::None) {
            Head::None => None,
            Head::Here(block) => Some(block),
            Head::Held(block) => {
                rings.release(&block);
                self.held_bytes -= u64::from(block.len);
                Some(block)
            }
        }
    }

    /// Holds the metadata of a message beyond its batch.
    fn hold(&mut self, head: &mut Head, cx: &mut Context<'_>) {
        let Head::Here(block) = head else { return };
        let fits = self.held_bytes + u64::from(block.len) <= HELD_BYTES;
        *head = match fits.then(|| cx.rings.hold(block)).flatten() {
            Some(held) => {
                self.held_bytes += u64::from(held.len);
                Head::Held(held)
            }
            None => {
                cx.count("metadata not held", 1);
                Head::None
            }
        };
    }
}

impl<M: Matcher<Cursor: 'static>> SessionFilter for Messages<M> {
    type State = Message<M::Cursor>;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Self::State {
        Message { stream: self.streams.begin(), head: Head::None }
    }

    fn run(&mut self, state: &mut Self::State, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut ends = false;
        for place in places(batch.live()) {
            let block = batch.block_mut(place);
            ends = block.has(Flags::LAST);
            if block.has(Flags::META) {
                self.take(&mut state.head, cx.rings);
                state.head = Head::Here(*block);
                continue;
            }
            let begins = !state.stream.passed;
            if !self.streams.passes(&mut state.stream, block, cx) {
                cx.reject(place);
                continue;
            }
            if begins && let Some(head) = self.take(&mut state.head, cx.rings) {
                cx.emit(head);
                block.set_flags(block.flags().without(Flags::FIRST));
            }
            cx.emit(*block);
        }
        if !ends {
            self.hold(&mut state.head, cx);
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        mut state: Self::State,
        _class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        self.take(&mut state.head, cx.rings);
        Ok(())
    }
}

impl<P> Stream<P> {
    /// Decides whether the block passes. A passing block gets the flags and the gap of its place among the blocks that pass.
    fn keeps(&mut self, block: &mut Descriptor, found: bool, rest: bool) -> bool {
        let gap = u64::from(block.gap());
        let matches = found || rest && self.passed;
        if !matches {
            self.left_out = self.left_out.saturating_add(gap + u64::from(block.len));
            if !block.has(Flags::LAST) || !self.passed {
                return false;
            }
            block.pos += u64::from(block.len);
            block.len = 0;
        }
        let missing = if matches { self.left_out.saturating_add(gap) } else { self.left_out };
        if missing > 0 {
            // A length on the wire has 32 bits. A larger gap counts as the largest that fits.
            block.set_wire(u32::try_from(missing).unwrap_or(u32::MAX).saturating_add(block.len));
            block.add_flags(Flags::GAP_BEFORE);
        }
        if !self.passed {
            block.add_flags(Flags::FIRST);
        }
        (self.passed, self.left_out) = (true, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::flow::Flow;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};
    use testkit::{Chain, Outcome};

    fn piece(class: u32, bytes: &[u8], flags: Flags) -> (Descriptor, Vec<u8>) {
        let mut block = Descriptor { class: Class(class), ..Descriptor::default() };
        block.set_flags(flags);
        (block, bytes.to_vec())
    }

    fn gap(mut piece: (Descriptor, Vec<u8>), bytes: u32) -> (Descriptor, Vec<u8>) {
        piece.0.add_flags(Flags::GAP_BEFORE);
        piece.0.set_wire(piece.1.len() as u32 + bytes);
        piece
    }

    /// The pieces as one stream: flags the first and the last.
    fn stream(pieces: &[&[u8]]) -> Vec<(Descriptor, Vec<u8>)> {
        let end = pieces.len().saturating_sub(1);
        let flags = |at| {
            let first = if at == 0 { Flags::FIRST } else { Flags::NONE };
            if at == end { first.with(Flags::LAST) } else { first }
        };
        pieces.iter().enumerate().map(|(at, bytes)| piece(0, bytes, flags(at))).collect()
    }

    fn run(of: Type, pieces: Vec<(Descriptor, Vec<u8>)>, given: &[(&str, &str)]) -> Outcome {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let flow = Flow { source: address, target: address, source_port: 1, target_port: 2, protocol: 6 };
        let facts = StreamFacts::new(flow, 0, StreamState::Established);
        Chain::pieces(of, Some(1), pieces)
            .streams(&std::array::from_fn::<_, 40, _>(|_| facts.clone()))
            .then(&KIND, given)
            .run()
    }

    #[test]
    fn frames_stand_for_themselves() {
        let check = |given: &[(&str, &str)], frames: &[&[u8]], expected: &[&[u8]]| {
            let pieces = frames.iter().map(|bytes| piece(0, bytes, Flags::NONE)).collect();
            let outcome = run(Type::Frame, pieces, given);
            assert_eq!(outcome.blocks.iter().map(|block| &block.bytes[..]).collect::<Vec<_>>(), expected, "{given:?}");
            assert_eq!(outcome.counters("match").events.get("matches"), expected.len() as u64);
        };
        let frames: [&[u8]; 5] = [b"GET /a HTTP", b"get /b", b"G", b"ET /c", b""];
        check(&[("text", "GET /")], &frames, &[b"GET /a HTTP"]);
        check(&[("text", "GET /"), ("ignore-case", "yes")], &frames, &[b"GET /a HTTP", b"get /b"]);
        check(&[("text", "GET /"), ("text", "/c")], &frames, &[b"GET /a HTTP", b"ET /c"]);
        check(&[("regex", "(?-u)^[Gg].T? /")], &frames, &[b"GET /a HTTP"]);
        check(&[("regex", "^et"), ("ignore-case", "yes")], &frames, &[b"ET /c"]);
        check(&[("regex", "/b$"), ("text", "ET /")], &frames, &[b"GET /a HTTP", b"get /b", b"ET /c"]);
        check(&[("regex", r"\x00\xff")], &[b"\x00\xff", b"\xc3\xbf"], &[b"\x00\xff"]);
    }

    /// Compares the pieces in which a match ends.
    fn check_ends(given: &[(&str, &str)], pieces: &[&[u8]], expected: &[usize]) {
        let mut pieces = stream(pieces);
        // Without LAST, so that no block passes only because of its flag.
        pieces.iter_mut().for_each(|(block, _)| block.set_flags(block.flags().without(Flags::LAST)));
        pieces.iter_mut().enumerate().for_each(|(at, (block, _))| block.time = at as u64);
        let outcome = run(Type::Bytes, pieces, given);
        let passed: Vec<_> = outcome.blocks.iter().map(|block| block.descriptor.time as usize).collect();
        assert_eq!(passed, expected, "{given:?}");
    }

    #[test]
    fn matches_cross_blocks() {
        let text = |text| [("text", text)];
        check_ends(&text("secret"), &[b"xsecretx", b"x"], &[0]);
        check_ends(
            &text("secret"),
            &[b"xsec", b"retx", b"secret", b"s", b"e", b"c", b"r", b"e", b"t", b""],
            &[1, 2, 8],
        );
        check_ends(&text("aaa"), &[b"aa", b"a", b"a", b"b", b"aa", b"aa"], &[1, 2, 5]);
        check_ends(&text("x"), &[b"a", b"x", b"xa"], &[1, 2]);
        check_ends(&[("text", "SeCret"), ("ignore-case", "yes")], &[b"sEC", b"rET"], &[1]);
        check_ends(&[("text", "short"), ("text", "much longer")], &[b"much sho", b"rt much long", b"er"], &[1, 2]);
        let regex = |regex| [("regex", regex)];
        check_ends(&regex("sec+ret"), &[b"xsec", b"", b"cc", b"cretx", b"secret", b"secret"], &[3, 4, 5]);
        check_ends(&regex("a.b"), &[b"a", b"\n", b"baxb"], &[2]);
        check_ends(&regex("(?s)a.b"), &[b"a", b"\n", b"baxb"], &[2]);
        check_ends(&regex("^ab"), &[b"a", b"b", b"ab"], &[1]);
        check_ends(&regex("password=[^&]{3}"), &[b"user=x&pass", b"word=12", b"3&"], &[2]);
        check_ends(&[("regex", "b+c"), ("text", "A.")], &[b"A", b".", b"Ab", b"c"], &[1, 3]);
        // A byte behind a match can decide about it. So such a match is known one block later.
        check_ends(&regex(r"\bend\b"), &[b"the end", b" of", b"endless", b" end."], &[1, 3]);
    }

    #[test]
    fn the_end_of_a_stream_ends_a_match() {
        let check = |pieces: &[&[u8]], expected: &[&[u8]]| {
            let outcome = run(Type::Bytes, stream(pieces), &[("regex", "end$")]);
            assert_eq!(outcome.blocks.iter().map(|block| &block.bytes[..]).collect::<Vec<_>>(), expected);
        };
        check(&[b"en", b"d"], &[b"d"]);
        check(&[b"end", b""], &[b""]);
        check(&[b"end", b"s"], &[]);
    }

    #[test]
    fn nothing_matches_across_missing_bytes() {
        for given in [("text", "secret"), ("regex", "s[e]cret")] {
            let broken = vec![piece(0, b"sec", Flags::FIRST), gap(piece(0, b"ret", Flags::NONE), 5)];
            assert_eq!(run(Type::Bytes, broken, &[given]).blocks.len(), 0);
            let behind = vec![piece(0, b"sec", Flags::FIRST), gap(piece(0, b"secret", Flags::NONE), 5)];
            assert_eq!(run(Type::Bytes, behind, &[given]).blocks.len(), 1);
        }
        let behind = vec![piece(0, b"x", Flags::FIRST), gap(piece(0, b"ab", Flags::NONE), 5)];
        assert_eq!(run(Type::Bytes, behind, &[("regex", "^ab")]).blocks.len(), 0);
    }

    /// Compares the blocks that pass, as (class, bytes, missing before them, first, last).
    fn check_streams(
        pieces: Vec<(Descriptor, Vec<u8>)>,
        given: &[(&str, &str)],
        expected: &[(u32, &[u8], u32, bool, bool)],
    ) {
        let outcome = run(Type::Message, pieces, given);
        let passed = outcome.blocks.iter().map(|block| {
            let d = &block.descriptor;
            (d.class.0, &block.bytes[..], d.gap(), d.has(Flags::FIRST), d.has(Flags::LAST))
        });
        assert_eq!(passed.collect::<Vec<_>>(), expected, "{given:?}");
    }

    #[test]
    fn what_passes_is_a_stream_with_gaps() {
        let x = &[("text", "x")][..];
        let rest = &[("text", "x"), ("pass", "rest")][..];
        let five = || stream(&[b"aa", b"bx", b"cccc", b"dx", b"eee"]);
        check_streams(five(), x, &[(0, b"bx", 2, true, false), (0, b"dx", 4, false, false), (0, b"", 3, false, true)]);
        check_streams(
            five(),
            rest,
            &[
                (0, b"bx", 2, true, false),
                (0, b"cccc", 0, false, false),
                (0, b"dx", 0, false, false),
                (0, b"eee", 0, false, true),
            ],
        );
        check_streams(stream(&[b"aa", b"bb"]), x, &[]);
        check_streams(stream(&[b"ax"]), x, &[(0, b"ax", 0, true, true)]);
        check_streams(stream(&[b"x", b""]), x, &[(0, b"x", 0, true, false), (0, b"", 0, false, true)]);
        let mut gaps = five();
        gaps[2] = gap(gaps[2].clone(), 100);
        gaps[3] = gap(gaps[3].clone(), 1000);
        check_streams(gaps, x, &[(0, b"bx", 2, true, false), (0, b"dx", 1104, false, false), (0, b"", 3, false, true)]);
        let mut long = five();
        long[2] = gap(long[2].clone(), (1 << 24) - 5);
        check_streams(
            long,
            x,
            &[(0, b"bx", 2, true, false), (0, b"dx", (1 << 24) - 3, false, false), (0, b"", 3, false, true)],
        );
    }

    #[test]
    fn streams_do_not_meet_and_metadata_is_not_looked_at() {
        let only = Flags::FIRST.with(Flags::LAST);
        let pieces = vec![
            piece(0, b"se", Flags::FIRST),
            piece(1, b"cret", Flags::FIRST),
            piece(0, b"cret", Flags::LAST),
            piece(1, b"", Flags::LAST),
            piece(2, b"secret", Flags::META.with(Flags::FIRST)),
            piece(2, b"sec", Flags::NONE),
            piece(2, b"ret", Flags::LAST),
            // Three datagrams of one flow.
            piece(3, b"sec", only),
            piece(3, b"ret", only),
            piece(3, b"secret", only),
        ];
        check_streams(
            pieces,
            &[("text", "secret")],
            &[
                (0, b"cret", 2, true, true),
                (2, b"secret", 0, true, false),
                (2, b"ret", 3, false, true),
                (3, b"secret", 0, true, true),
            ],
        );
    }

    #[test]
    fn metadata_passes_with_what_matches() {
        const META: Flags = Flags::META.with(Flags::FIRST);
        let others = || (0..200).map(|_| piece(1, b"-", Flags::NONE));
        let mut pieces = vec![piece(0, b"a", META), piece(2, b"b", META), piece(4, b"c secret", META)];
        // Many batches later.
        pieces.extend(others());
        pieces.extend([
            piece(2, b"-", Flags::LAST),
            piece(0, b"secret", Flags::NONE),
            // Two messages of one class and a block of another class in a batch.
            piece(0, b"-secret", Flags::LAST),
            piece(0, b"d", META),
            piece(1, b"-", Flags::NONE),
            piece(0, b"sec", Flags::NONE),
            piece(0, b"ret", Flags::NONE),
        ]);
        pieces.extend(others());
        pieces.extend([
            piece(4, b"", Flags::LAST),
            piece(0, b"-", Flags::LAST),
            piece(6, b"e secret", META.with(Flags::LAST)),
            piece(8, b"f", META),
            // A message without an end.
            piece(8, b"g", META),
            piece(8, b"secret", Flags::LAST),
        ]);
        check_streams(
            pieces.clone(),
            &[("text", "secret")],
            &[
                (0, b"a", 0, true, false),
                (0, b"secret", 0, false, false),
                (0, b"-secret", 0, false, true),
                (0, b"d", 0, true, false),
                (0, b"ret", 3, false, false),
                (0, b"", 1, false, true),
                (8, b"g", 0, true, false),
                (8, b"secret", 0, false, true),
            ],
        );
        let outcome = run(Type::Message, pieces, &[("text", "secret")]);
        let counters = outcome.counters("match");
        assert!(counters.adds_up(), "{counters:?}");
        assert_eq!((counters.blocks_made, counters.events.get("metadata not held")), (8, 0));
    }

    #[test]
    fn metadata_held_is_bounded_and_given_back() {
        let row = vec![b'-'; 1 << 20];
        let messages = (HELD_BYTES >> 20) as u32 + 6;
        let mut pieces: Vec<_> =
            (0..messages).map(|class| piece(class, &row, Flags::META.with(Flags::FIRST))).collect();
        let more = pieces.clone();
        // Fills the batch, so that the filter has to hold the metadata.
        pieces.extend((0..64).map(|_| piece(messages, b"-", Flags::NONE)));
        let body = |text: &'static [u8]| move |class| piece(class, text, Flags::LAST);
        pieces.extend((0..messages).map(body(b"-")));
        // All holds have ended, so there is room for as many again.
        pieces.extend(more);
        pieces.extend((0..64).map(|_| piece(messages, b"-", Flags::NONE)));
        pieces.extend((0..messages).map(body(b"x")));
        let outcome = run(Type::Message, pieces, &[("text", "x")]);
        assert_eq!(outcome.counters("match").events.get("metadata not held"), 2 * 6);
        let heads = outcome.blocks.iter().filter(|block| block.descriptor.has(Flags::META)).count();
        assert_eq!((heads, outcome.blocks.len()), (messages as usize - 6, 2 * messages as usize - 6));
    }

    #[test]
    fn the_longest_text_there_may_be() {
        let text: String = (0..PATTERN_BYTES).map(|at| char::from(b'a' + (at * at % 23) as u8)).collect();
        let (one, other) = text.as_bytes().split_at(PATTERN_BYTES / 3);
        for ignore_case in ["no", "yes"] {
            check_ends(&[("text", &text), ("ignore-case", ignore_case)], &[b"x", one, other], &[2]);
        }
    }

    #[test]
    fn events() {
        let outcome = run(Type::Bytes, stream(&[b"x", b"xx", b"", b"x"]), &[("text", "x")]);
        let events = &outcome.counters("match").events;
        assert_eq!((events.get("matches"), events.get("streams matched")), (3, 1));
    }

    #[test]
    fn refusals() {
        let check = |of: Type, given: &[(&str, &str)], key: &str, message: &str| {
            let error = Chain::pieces(of, Some(1), Vec::new()).then(&KIND, given).refusal().unwrap();
            assert_eq!(error.key, Some(key));
            assert!(error.message.contains(message), "{}", error.message);
        };
        check(Type::Frame, &[], "text", "no text to look for");
        check(Type::Frame, &[("text", "")], "text", "empty");
        check(Type::Frame, &[("text", "a"), ("pass", "rest")], "pass", "frame comes");
        check(Type::Bytes, &[("text", &"a".repeat(PATTERN_BYTES + 1))], "text", "65536");
        for of in [Type::Packet, Type::Bytes] {
            check(of, &[("regex", "a(b")], "regex", "`a(b` is no regular expression: unclosed group at byte 1");
            check(of, &[("regex", "a*")], "regex", "empty text");
            check(of, &[("regex", "((a{1000}){1000}){1000}")], "regex", "cannot be built");
        }
        check(Type::Bytes, &[("regex", "(a|b)*a(a|b){30}")], "regex", "cannot be built");
    }

    /// The pieces of `text` in which a part ends that `is_match` accepts. Tries all parts.
    fn ends(text: &[u8], cuts: &[usize], is_match: impl Fn(&[u8]) -> bool) -> Vec<usize> {
        let ends = |end: &usize| (0..*end).any(|start| is_match(&text[start..*end]));
        let ends: Vec<usize> = (1..=text.len()).filter(ends).collect();
        let piece = |at: usize| (cuts[at], cuts[at + 1]);
        (0..cuts.len() - 1).filter(|at| ends.iter().any(|end| piece(*at).0 < *end && *end <= piece(*at).1)).collect()
    }

    proptest! {
        /// For any cuts of a stream, the same blocks pass as when every part of the stream is tried.
        #[test]
        fn cuts_do_not_matter(
            text in proptest::collection::vec(proptest::sample::select(b"abc".to_vec()), 0..40),
            cuts in proptest::collection::vec(0usize..40, 0..12),
            one in "[abc]{1,5}",
            other in "[abc]{1,3}",
            expression in proptest::sample::select(vec!["a+b", "ab|c{3}", "(?:abc)+", "[ab]c.a", "b.{2,4}b", "aabb"]),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let is = |wanted: &str| { let wanted = wanted.as_bytes().to_vec(); move |part: &[u8]| part == wanted };
            let whole = regex_automata::meta::Regex::new(&format!("^(?:{expression})$")).unwrap();
            check_ends(&[("text", &one)], &pieces, &ends(&text, &cuts, is(&one)));
            let (is_one, is_other) = (is(&one), is(&other));
            let either = |part: &[u8]| is_one(part) || is_other(part);
            check_ends(&[("text", &one), ("text", &other)], &pieces, &ends(&text, &cuts, either));
            let upper = one.to_uppercase();
            check_ends(&[("text", &upper), ("ignore-case", "yes")], &pieces, &ends(&text, &cuts, is(&one)));
            check_ends(&[("regex", expression)], &pieces, &ends(&text, &cuts, |part| whole.is_match(part)));
        }
    }
}
