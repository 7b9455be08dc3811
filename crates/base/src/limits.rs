//! Every maximum of the data path, in one file, as sums of named terms; relations between them are checked when it compiles.
//! Those of who may ask whom how much are where they are asked.
//!
//! A limit that is met is counted or reported where it is met; none of them is silent.

/// Blocks in one batch: one bit each in a batch's `live` word.
pub const BATCH_BLOCKS: usize = 64;

/// Blocks a source gives at a time at most, of those that are there: so many that what a pull costs is spread, so few that
/// their descriptors (8 KB) leave a first-level cache to the bytes.
pub const PULL_BLOCKS: usize = 4 * BATCH_BLOCKS;

/// Views a table of rings can name at once: all values of a descriptor's ring field.
pub const RINGS: usize = 1 << 16;

/// Segments that one received super-frame is cut into at most: 64 KiB of TCP at the smallest segment that Linux sends. A frame of
/// more is dropped.
pub const SUPER_FRAME_SEGMENTS: usize = 2048;

/// Bytes of one block at most: what the descriptor's 24-bit wire length can say.
pub const BLOCK_BYTES: usize = (1 << 24) - 1;

/// An append ring grows and shrinks by regions of this size.
pub const APPEND_REGION_BYTES: usize = 1 << 20;

/// Regions of one append ring that held blocks may keep from being used again; further holds are copied.
pub const PINNED_REGIONS: usize = 64;

/// Empty regions an append ring keeps for its next bytes.
pub const SPARE_REGIONS: usize = 4;

/// Regions of an append ring that other threads still read and that are kept to be used again.
pub const LENT_REGIONS: usize = 32;

/// Files mapped at the same time whose cutting under the map is caught; further files are read instead.
pub const MAPPED_FILES: usize = 256;

/// Streams (connections and flows) known at a time; the one longest silent makes room.
pub const STREAMS: usize = 1 << 20;

/// Sessions one filter keeps at a time; the one longest silent makes room.
pub const SESSIONS: usize = STREAMS;

/// A session without a block for this long (packet time) is closed.
pub const SESSION_IDLE_NS: u64 = 600 * SECOND_NS;

/// Connections `tcp` knows at a time, ended ones that it still remembers included: about 300 bytes each. The one longest
/// silent makes room.
pub const TCP_CONNECTIONS: usize = STREAMS / 2;

/// Ended connections that `tcp` remembers, so that late packets and new connections between the same ports are known
/// for what they are.
pub const TCP_REMEMBERED: usize = 1 << 16;

/// A connection without a packet for this long (packet time) is over, if the request does not say otherwise.
pub const TCP_IDLE_NS: u64 = 600 * SECOND_NS;

/// A connection of which only SYNs were seen is over after this long without a packet.
pub const TCP_OPENING_IDLE_NS: u64 = 130 * SECOND_NS;

/// A connection that was reset, or ended without the last acknowledgement, is over after this long without a packet.
pub const TCP_CLOSING_IDLE_NS: u64 = 5 * SECOND_NS;

/// Packets without SYN that come this long after the end of a connection, at most, are late ones of that connection
/// (twice the maximum segment lifetime, RFC 9293, 3.4.2).
pub const TCP_LINGER_NS: u64 = 240 * SECOND_NS;

/// Missing bytes that the receiver has acknowledged are given up on after this long (packet time).
pub const TCP_GAP_WAIT_NS: u64 = SECOND_NS;

/// Out-of-order segments held for one direction of a connection.
pub const TCP_HELD_BLOCKS_PER_DIRECTION: usize = 1 << 14;

/// Out-of-order segments held for all connections of one `tcp`: about 120 bytes each.
pub const TCP_HELD_BLOCKS: usize = 1 << 18;

/// Bytes of out-of-order segments held, if the request does not say otherwise.
pub const TCP_HELD_BYTES: u64 = 256 << 20;

/// Earlier pieces that a segment is compared with where it has bytes in common with them; more are not looked at.
pub const TCP_COMPARED_PIECES: usize = 256;

/// Pieces that `tcp` remembers of what it gave, where the request asks for that: about 120 bytes each.
pub const TCP_GIVEN_PIECES: usize = 1 << 18;

/// Pieces of one direction whose receiver should not have taken them and that wait all the same; further ones are dropped.
pub const TCP_DOUBTFUL_BLOCKS_PER_DIRECTION: usize = 256;

/// Bytes of such pieces of all connections.
pub const TCP_DOUBTFUL_BYTES: u64 = 16 << 20;

/// A connection silent for longer than this has timestamps that say nothing any more (RFC 7323, 5.5): 24 days.
pub const TCP_STAMP_AGE_NS: u64 = 24 * 24 * 3600 * SECOND_NS;

/// The least window that a receiver is taken to have, whatever it offers: what it can say without scaling.
pub const TCP_WINDOW_LEAST_BYTES: u32 = (1 << 16) - 1;

/// Bytes of one version of a place in a stream that a record of `conflicts` shows.
pub const CONFLICT_BYTES: usize = 4 << 10;

/// Bytes ahead of what is expected within which a segment belongs to a connection: the largest window there is
/// (RFC 7323, 2.3).
pub const TCP_WINDOW_BYTES: u32 = 1 << 30;

/// Flows `udp` knows at a time; the one longest silent makes room.
pub const UDP_FLOWS: usize = STREAMS / 2;

/// A flow without a datagram for this long (packet time) is over, if the request does not say otherwise.
pub const UDP_IDLE_NS: u64 = 60 * SECOND_NS;

/// Flows that `flows` keeps, at most.
pub const FLOWS: usize = 10_000_000;

/// Tunnels that `decap` opens one inside of the other.
pub const DECAP_DEPTH: usize = 8;

/// Tunnels that `decap` tells apart, one of each direction: what is told of further ones is less, and in the end nothing.
pub const DECAP_TUNNELS: usize = 1 << 14;

/// Fragmented packets that `decap` keeps at a time: about 300 bytes each. The one that began first makes room.
pub const DECAP_PACKETS: usize = 1 << 16;

/// Pieces of all of them: about 100 bytes each.
pub const DECAP_PIECES: usize = 1 << 18;

/// Bytes of fragments held, if the request does not say otherwise.
pub const DECAP_HELD_BYTES: u64 = 32 << 20;

/// A packet whose fragments have not all come this long after the first (packet time) is given up on, if the request does not
/// say otherwise (RFC 8200, 4.5).
pub const DECAP_TIMEOUT_NS: u64 = 60 * SECOND_NS;

/// Packet time goes on by this much at most from one batch to the next: captures merged from several, or with a frame whose
/// time is wrong, do not make everything look idle at once.
pub const CLOCK_STEP_NS: u64 = SECOND_NS;

/// One second of packet time.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Nodes of one plan: filters of all requests together.
pub const PLAN_NODES: usize = 4096;

/// Parcels of a channel between stages, each of [`PULL_BLOCKS`] blocks at most. A power of two.
pub const PARCELS: usize = 16;

/// Shares of the flows of one request at most (`set workers=`).
pub const WORKERS: usize = 64;

/// Threads that run one request at most: its stages, and a thread for each share.
pub const THREADS: usize = 2 * WORKERS;

/// Notices (warnings for people) kept of one run; more are counted.
pub const NOTICES: usize = 64;

/// Rings that copies of a request's edges go into, for those who watch them: a bit each in a word of a node.
pub const WATCHES: usize = 64;

/// Bytes of one block that are copied for those who watch; longer ones are cut.
pub const WATCHED_BLOCK_BYTES: usize = 256 << 10;

/// Bytes of the ring that copies for those who watch an edge go into, and how many blocks it has at most.
pub const WATCH_RING: (u64, u64) = (4 << 20, 1 << 14);

/// Reports of plans that were replaced which a worker keeps until somebody takes them, and which are shown in the end.
pub const REPLACED_REPORTS: usize = 64;

/// Blocks and bytes that a request gives its program at a time, between two calls for the next block: what one batch of a source
/// becomes. More is an error of the request.
pub const GIVEN_BLOCKS: usize = 1 << 20;

/// See [`GIVEN_BLOCKS`].
pub const GIVEN_BYTES: u64 = 2 * TCP_HELD_BYTES;

/// Bytes that a program has pushed and the request has not met yet; more is an error of the program.
pub const PUSHED_BYTES: u64 = 64 << 20;

/// Files that `files` keeps open between two writes; others are opened again for each.
pub const FILES_OPEN: usize = 64;

/// Blocks of one file held until they are written: as many as one vectored write takes on Linux.
pub const FILE_PENDING_BLOCKS: usize = 1024;

/// Bytes of one file held until they are written.
pub const FILE_PENDING_BYTES: u64 = 1 << 20;

/// Blocks of all files of one `files` held until they are written: 16 bytes each.
pub const FILES_PENDING_BLOCKS: usize = 1 << 18;

/// Bytes of all files of one `files` held until they are written: half of what an append ring lets holds pin.
pub const FILES_PENDING_BYTES: u64 = 32 << 20;

/// Gaps of one file that the index lists.
pub const FILE_GAPS: usize = 1000;

/// Bytes of metadata that one sink keeps of all its open messages; of further ones only the flow is known.
pub const META_KEPT_BYTES: usize = 64 << 20;

/// Bytes of one text of a message's metadata (a URL, a user agent) that a sink shows; the rest is left out.
pub const META_TEXT_BYTES: usize = 16 << 10;

/// The head of an HTTP message: start line, header fields and the empty line after them. Servers take 8 to 64 KiB.
pub const HTTP_HEAD_BYTES: usize = 128 << 10;

/// The name of an HTTP method.
pub const HTTP_METHOD_BYTES: usize = 24;

/// Bytes `http` looks through for a start line in a direction that has shown none yet.
pub const HTTP_SEEK_BYTES: usize = 64 << 10;

/// Codings of one HTTP message, one on top of the other; further ones are left as they are.
pub const HTTP_CODINGS: usize = 4;

/// Kept of an HTTP connection's requests that have no response yet; further ones are answered namelessly.
pub const HTTP_ASKED_BYTES: usize = 64 << 10;

/// Bytes that the codings of one HTTP message may give before `max-ratio` counts: the page of a small compressed text
/// often has a ratio of more than 100.
pub const HTTP_RATIO_FREE_BYTES: u64 = 1 << 20;

/// The same for all messages of one `http` together: many small messages, each below its own limit, are a bomb as well.
pub const HTTP_RATIO_FREE_TOTAL_BYTES: u64 = 64 * HTTP_RATIO_FREE_BYTES;

/// Decoded bytes of one block at most.
pub const DECODED_BLOCK_BYTES: usize = 64 << 10;

/// Decoded bytes given by one call before they are sent on.
pub const DECODED_TURN_BYTES: usize = 4 * DECODED_BLOCK_BYTES;

/// Blocks `http` gives in one call before they are sent on.
pub const HTTP_TURN_BLOCKS: usize = 8 * BATCH_BLOCKS;

/// Bytes between two codings of one message, one on top of the other.
pub const CODING_STAGE_BYTES: usize = 16 << 10;

/// Coded bytes of one body that are put together before they are decoded, where they come in one batch: a decoder that is
/// called for each segment takes a quarter longer.
pub const CODED_GATHER_BYTES: usize = 32 << 10;

/// What one inflating decoder takes: its window, its tables and its output that is not fetched yet.
pub const INFLATE_BYTES: usize = 48 << 10;

/// What one brotli decoder takes beside its window: three groups of up to 256 prefix codes (RFC 7932 section 10).
pub const BROTLI_TABLES_BYTES: usize = 4 << 20;

/// The largest window of brotli (RFC 7932 section 9.1; larger ones are refused).
pub const BROTLI_WINDOW_BYTES: usize = 1 << 24;

/// Decoders and buffers `http` keeps for the next message that needs one.
pub const HTTP_SPARES: usize = 16;

/// Questions, answers or authorities of one DNS message that its record lists.
pub const DNS_ROWS: usize = 256;

/// Bytes of DNS record data without a text form that are shown.
pub const DNS_RDATA_BYTES: usize = 256;

/// Bytes that one `dns` keeps of messages whose rest has not come, over all TCP streams.
pub const DNS_BUFFERED_BYTES: usize = 64 << 20;

/// Bytes that one `tls` keeps of hellos whose rest has not come, over all streams.
pub const TLS_BUFFERED_BYTES: usize = 64 << 20;

/// Bytes of plain text at the beginning of a stream within which `tls` looks for a hello (STARTTLS, proxies).
pub const TLS_PREAMBLE_BYTES: u64 = 16 << 10;

/// Bytes that one `ssh` keeps of openings whose rest has not come, over all streams.
pub const SSH_BUFFERED_BYTES: usize = 64 << 20;

/// Bytes of a line of SMTP or FTP that are read; the rest of the line is passed over.
pub const TEXT_LINE_BYTES: usize = 4 << 10;

/// Bytes that one `smtp` or `ftp` keeps of lines and names, over all connections.
pub const TEXT_BUFFERED_BYTES: usize = 64 << 20;

/// Receivers of one mail that its record lists.
pub const SMTP_RECEIVERS: usize = 100;

/// Commands of one FTP connection that wait for their reply; further ones have none in their record.
pub const FTP_COMMANDS: usize = 64;

/// Lines of one FTP reply that its record lists.
pub const FTP_REPLY_LINES: usize = 64;

/// Data connections that one `ftp_data` waits for at a time; the one announced first makes room.
pub const FTP_EXPECTED: usize = 1 << 14;

/// Bytes that one `sip` keeps of messages whose rest has not come, over all TCP streams.
pub const SIP_BUFFERED_BYTES: usize = 64 << 20;

/// The head of a SIP message.
pub const SIP_HEAD_BYTES: usize = 64 << 10;

/// Options of one DHCP message that its record lists: routers, name servers, and what the client asks for.
pub const DHCP_LISTED: usize = 64;

/// Bytes that one `http2` keeps of frames and header fields whose rest has not come, over all connections.
pub const HTTP2_BUFFERED_BYTES: usize = 64 << 20;

/// The header fields of one HTTP/2 message before they are decoded, with their continuations.
pub const HTTP2_HEAD_BYTES: usize = 128 << 10;

/// The same when they are decoded: a reference of one byte may stand for a field of 4 KiB.
pub const HTTP2_FIELDS_BYTES: usize = 256 << 10;

/// Streams of one HTTP/2 connection that are known at a time; the one that began first makes room.
pub const HTTP2_STREAMS: usize = 1 << 10;

/// Bytes of the table of one direction's header fields (RFC 7541, 4.2), at most.
pub const HPACK_TABLE_BYTES: usize = 64 << 10;

/// Bytes that one `quic` keeps of hellos whose rest has not come, over all flows.
pub const QUIC_BUFFERED_BYTES: usize = 64 << 20;

/// Directions of flows that one `quic` knows at a time; the one that began first makes room.
pub const QUIC_FLOWS: usize = 1 << 14;

/// Pieces of one QUIC hello that are kept until the ones before them come.
pub const QUIC_PIECES: usize = 64;

/// Protocols of one stack inside an application.
pub const STACK_BLOCKS: usize = 32;

/// Turns that each protocol of a stack gets in one call, at most; one that wants more waits for the next call, and so
/// cannot hold the caller.
pub const STACK_TURNS: usize = 4;

/// ARP requests that wait in a stack for their answer; further ones go unanswered, and their senders ask again.
pub const STACK_ARP_ANSWERS: usize = 16;

/// Bytes of a `tcp` block's send or receive buffer, at most; and the fewest, below which windows have no sense.
pub const STACK_TCP_BUFFER_BYTES: (u32, u32) = (4 << 10, 16 << 20);

/// Bytes of received segments that wait for a turn of a `tcp` block: a usual receive window with its headers, twice.
/// What comes beyond them is counted as discarded, and the other side sends it again.
pub const STACK_TCP_QUEUE_BYTES: usize = 512 << 10;

/// Requests of one connection that wait for their responses in `transactions`.
pub const TRANSACTIONS_WAITING: usize = 256;

/// A request without a response is given up after this long.
pub const TRANSACTION_IDLE_NS: u64 = 60 * SECOND_NS;

/// Flows whose application protocol is kept until their own record comes, for logs.
pub const SERVICES: usize = 1 << 20;

/// Points of all lines that `plot` keeps.
pub const PLOT_POINTS: usize = 1 << 20;

/// Lines that `plot` keeps; it draws the largest.
pub const PLOT_LINES: usize = 1 << 12;

/// Longest name or value [`nearest`](crate::nearest()) compares, in bytes: edit distance costs the product of both
/// lengths.
pub const NEAREST_BYTES_MAX: usize = 64;

const _: () = assert!(BATCH_BLOCKS == u64::BITS as usize);
const _: () = assert!(WATCHES <= u64::BITS as usize);
const _: () = assert!(WATCHED_BLOCK_BYTES as u64 <= WATCH_RING.0 / 8, "a long block leaves room for others");
const _: () = assert!(APPEND_REGION_BYTES.is_power_of_two());
const _: () = assert!(SESSIONS >= STREAMS, "a filter can follow every stream there is");
const _: () = assert!(STREAMS < (u32::MAX / 2) as usize, "a class is connection * 2 + direction");
const _: () = assert!(FILES_PENDING_BYTES <= (PINNED_REGIONS * APPEND_REGION_BYTES) as u64 / 2);
const _: () = assert!(FILES_PENDING_BLOCKS >= FILE_PENDING_BLOCKS && FILES_PENDING_BYTES >= FILE_PENDING_BYTES);
const _: () = assert!(PUSHED_BYTES > BLOCK_BYTES as u64 && GIVEN_BYTES > PUSHED_BYTES);
const _: () = assert!(DECODED_TURN_BYTES + DECODED_BLOCK_BYTES <= APPEND_REGION_BYTES);
const _: () = assert!(HTTP_METHOD_BYTES < HTTP_HEAD_BYTES && HTTP_SEEK_BYTES <= HTTP_HEAD_BYTES);
const _: () = assert!(META_TEXT_BYTES < META_KEPT_BYTES);
const _: () = assert!(TCP_CONNECTIONS + UDP_FLOWS <= STREAMS, "both can have all they may have");
const _: () = assert!(DECAP_TUNNELS * 2 < RINGS, "views are left for sources and edits");
const _: () = assert!(STACK_BLOCKS <= u8::MAX as usize, "an exported state counts them in a byte");
const _: () = assert!(TCP_REMEMBERED < TCP_CONNECTIONS && TCP_HELD_BLOCKS_PER_DIRECTION < TCP_HELD_BLOCKS);

/// Rules of one rule set.
pub const RULES: usize = 200_000;

/// Bits and numbers that rules set for one flow, each.
pub const RULES_FLOW_BITS: usize = 64;

/// Bits that rules set for hosts, of all hosts together.
pub const RULES_HOST_BITS: usize = 1 << 18;

/// Counts that thresholds of rules keep.
pub const RULES_THRESHOLDS: usize = 1 << 18;

/// Steps that rules take for one packet and the bytes it completes: one for each keyword, for each further place of a content, and
/// for each 64 bytes that the engine searches.
pub const RULES_STEPS: u32 = 1 << 20;

/// Bytes of a stream that rules see at a time, the last ones.
pub const RULES_WINDOW_BYTES: usize = 8 << 10;

/// Rules that wait in one direction of a stream for what comes behind their pattern.
pub const RULES_WAITING: usize = 64;

/// Bytes of each direction of a stream that rules see: its first.
pub const RULES_STREAM_BYTES: u64 = 1 << 20;

/// Bytes of a body or of a file that rules see: its first.
pub const RULES_BODY_BYTES: usize = 100 << 10;

/// Bytes of streams and transactions that rules keep, of all flows together; the same for heads and decoders of HTTP.
pub const RULES_MEMORY_BYTES: usize = 256 << 20;

/// Flows whose state rules keep.
pub const RULES_FLOWS: usize = 1 << 18;

/// Transactions of one flow that are open at a time.
pub const RULES_TRANSACTIONS: usize = 64;

/// Files that one block of a stream may have in a transaction: rules look at each by itself.
pub const RULES_FILES: usize = 64;

/// Alerts of one packet.
pub const RULES_ALERTS: usize = 256;
