//! All maximums of the data path in one file, as sums of named terms. The compiler checks relations between them.
//! Limits on what one user may ask of another are where the requests are answered.
//!
//! A limit that is met is counted or reported there, never passed over in silence.

/// Blocks in one batch; each has a bit in the batch's `live` word.
pub const BATCH_BLOCKS: usize = 64;

/// Most blocks that a source gives at a time, if they are there. Enough to spread the cost of a pull, and few enough
/// that their descriptors (8 KB) leave room for bytes in a first-level cache.
pub const PULL_BLOCKS: usize = 4 * BATCH_BLOCKS;

/// Views that a table of rings can name at once: all values of a descriptor's ring field.
pub const RINGS: usize = 1 << 16;

/// Most segments that one received super-frame is cut into: 64 KiB of TCP at the smallest segment that Linux sends. A
/// longer frame is dropped.
pub const SUPER_FRAME_SEGMENTS: usize = 2048;

/// Most bytes of one block: the descriptor's wire length has 24 bits.
pub const BLOCK_BYTES: usize = (1 << 24) - 1;

/// An append ring grows and shrinks by regions of this size.
pub const APPEND_REGION_BYTES: usize = 1 << 20;

/// Most regions of one append ring that held blocks may pin; further held blocks are copied.
pub const PINNED_REGIONS: usize = 64;

/// Empty regions an append ring keeps for its next bytes.
pub const SPARE_REGIONS: usize = 4;

/// Most regions of an append ring that other threads still read and that are kept for reuse.
pub const LENT_REGIONS: usize = 32;

/// Most files mapped at the same time with a guard against being cut; further files are read instead.
pub const MAPPED_FILES: usize = 256;

/// Most streams (connections and flows) known at a time; the one with the longest silence makes room.
pub const STREAMS: usize = 1 << 20;

/// Most sessions of one filter at a time; the one with the longest silence makes room.
pub const SESSIONS: usize = STREAMS;

/// A session without a block for this long (packet time) is closed.
pub const SESSION_IDLE_NS: u64 = 600 * SECOND_NS;

/// Most connections that `tcp` knows at a time, including ended ones that it remembers: about 300 bytes each. The one
/// with the longest silence makes room.
pub const TCP_CONNECTIONS: usize = STREAMS / 2;

/// Most ended connections that `tcp` remembers, to recognise late packets and new connections between the same ports.
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

/// Missing bytes that the receiver has acknowledged are given up after this long (packet time).
pub const TCP_GAP_WAIT_NS: u64 = SECOND_NS;

/// Out-of-order segments held for one direction of a connection.
pub const TCP_HELD_BLOCKS_PER_DIRECTION: usize = 1 << 14;

/// Out-of-order segments held for all connections of one `tcp`: about 120 bytes each.
pub const TCP_HELD_BLOCKS: usize = 1 << 18;

/// Bytes of out-of-order segments held, if the request does not say otherwise.
pub const TCP_HELD_BYTES: u64 = 256 << 20;

/// Most earlier pieces that a segment is compared with if it has bytes in common with them; `ips` has no such limit.
pub const TCP_COMPARED_PIECES: usize = 256;

/// Most pieces of its output that `tcp` remembers, if the request asks for that: about 120 bytes each.
pub const TCP_GIVEN_PIECES: usize = 1 << 18;

/// Most pieces of one direction that wait although their receiver should not have taken them; further ones are dropped.
pub const TCP_DOUBTFUL_BLOCKS_PER_DIRECTION: usize = 256;

/// Bytes of such pieces of all connections.
pub const TCP_DOUBTFUL_BYTES: u64 = 16 << 20;

/// The timestamps of a connection that was silent for longer than this have no meaning any more (RFC 7323, 5.5): 24
/// days.
pub const TCP_STAMP_AGE_NS: u64 = 24 * 24 * 3600 * SECOND_NS;

/// The smallest window that a receiver is taken to have, whatever it offers: the largest one without scaling.
pub const TCP_WINDOW_LEAST_BYTES: u32 = (1 << 16) - 1;

/// Bytes of each version that a record of `conflicts` shows.
pub const CONFLICT_BYTES: usize = 4 << 10;

/// A segment belongs to a connection if it is at most this far ahead of the expected byte: the largest window there is
/// (RFC 7323, 2.3).
pub const TCP_WINDOW_BYTES: u32 = 1 << 30;

/// Most flows that `udp` knows at a time; the one with the longest silence makes room.
pub const UDP_FLOWS: usize = STREAMS / 2;

/// A flow without a datagram for this long (packet time) is over, if the request does not say otherwise.
pub const UDP_IDLE_NS: u64 = 60 * SECOND_NS;

/// Most flows that `flows` keeps.
pub const FLOWS: usize = 10_000_000;

/// Most conversations that `packets` knows; the longest silent one makes room.
pub const PACKETS_CONVERSATIONS: usize = 1 << 18;

/// Connections whose segments are analysed together.
pub const TCP_ANALYSED: usize = 1 << 18;

/// Segments of all these that are kept until they are acknowledged.
pub const TCP_ANALYSED_SEGMENTS: usize = 1 << 20;

/// Segments of one direction of these.
pub const TCP_ANALYSED_IN_FLIGHT: usize = 1 << 10;

/// Most tunnels, one inside the other, that `decap` opens.
pub const DECAP_DEPTH: usize = 8;

/// Most tunnels that `decap` tells apart, counting each direction. For further ones it tells less, and in the end
/// nothing at all.
pub const DECAP_TUNNELS: usize = 1 << 14;

/// Most fragmented packets that `decap` keeps at a time: about 300 bytes each. The one that began first makes room.
pub const DECAP_PACKETS: usize = 1 << 16;

/// Pieces of all these packets: about 100 bytes each.
pub const DECAP_PIECES: usize = 1 << 18;

/// Bytes of fragments held, if the request does not say otherwise.
pub const DECAP_HELD_BYTES: u64 = 32 << 20;

/// If a packet's fragments have not all come this long after the first (packet time), the packet is given up, unless
/// the request says otherwise (RFC 8200, 4.5).
pub const DECAP_TIMEOUT_NS: u64 = 60 * SECOND_NS;

/// Packet time advances at most this much from one batch to the next. So a merged capture, or one frame with a wrong
/// time, does not make everything look idle at once.
pub const CLOCK_STEP_NS: u64 = SECOND_NS;

/// One second of packet time.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Nodes of one plan: filters of all requests together.
pub const PLAN_NODES: usize = 4096;

/// Parcels of a channel between stages, each of up to [`PULL_BLOCKS`] blocks. A power of two.
pub const PARCELS: usize = 16;

/// Most partitions of the flows of one request (`set workers=`).
pub const WORKERS: usize = 64;

/// Most threads of one request: its stages, and a thread for each partition.
pub const THREADS: usize = 2 * WORKERS;

/// Most notices (warnings for people) kept of one run; more are counted.
pub const NOTICES: usize = 64;

/// Most inputs of one source that are named at the end of a run because they could not be read; more are counted.
pub const LEFT_OUT: usize = 16;

/// Most rings with copies of a request's edges, for watchers; each has a bit in a word of a node.
pub const WATCHES: usize = 64;

/// Most bytes of one block that are copied for watchers; longer blocks are cut.
pub const WATCHED_BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a watched edge's ring, and the most blocks in it.
pub const WATCH_RING: (u64, u64) = (4 << 20, 1 << 14);

/// Most reports of replaced plans that a worker keeps until its caller takes them, and that are shown at the end.
pub const REPLACED_REPORTS: usize = 64;

/// Most blocks and bytes that a request gives its program between two calls for the next block, from one batch of a
/// source. More is an error of the request.
pub const GIVEN_BLOCKS: usize = 1 << 20;

/// See [`GIVEN_BLOCKS`].
pub const GIVEN_BYTES: u64 = 2 * TCP_HELD_BYTES;

/// Most bytes that a program has pushed and that have not gone through the request yet; more is an error of the
/// program.
pub const PUSHED_BYTES: u64 = 64 << 20;

/// Most files that `files` keeps open between two writes; it opens further ones again for each write.
pub const FILES_OPEN: usize = 64;

/// Blocks of one file held until they are written: the most that one vectored write takes on Linux.
pub const FILE_PENDING_BLOCKS: usize = 1024;

/// Bytes of one file held until they are written.
pub const FILE_PENDING_BYTES: u64 = 1 << 20;

/// Blocks of all files of one `files` held until they are written: 16 bytes each.
pub const FILES_PENDING_BLOCKS: usize = 1 << 18;

/// Bytes of all files of one `files` held until they are written: half the bytes that holds may pin in an append ring.
pub const FILES_PENDING_BYTES: u64 = 32 << 20;

/// Gaps of one file that the index lists.
pub const FILE_GAPS: usize = 1000;

/// Most bytes of metadata that one sink keeps of all its open messages; for further ones it knows only the flow.
pub const META_KEPT_BYTES: usize = 64 << 20;

/// Bytes of one text of a message's metadata (a URL, a user agent) that a sink shows; the rest is left out.
pub const META_TEXT_BYTES: usize = 16 << 10;

/// Bytes of the head of an HTTP message: start line, header fields and the empty line behind them. Servers take 8 to 64
/// KiB, curl 300.
pub const HTTP_HEAD_BYTES: usize = 300 << 10;

/// Bytes of the name of an HTTP method.
pub const HTTP_METHOD_BYTES: usize = 24;

/// Bytes in which `http` looks for a start line in a direction that has shown none yet.
pub const HTTP_SEEK_BYTES: usize = 64 << 10;

/// Most codings of one HTTP message, one on top of the other; further ones are left as they are. Browsers have no bound,
/// curl undoes five.
pub const HTTP_CODINGS: usize = 8;

/// Window of a Zstandard content coding (RFC 9659).
pub const ZSTD_WINDOW_BYTES: usize = 8 << 20;

/// Bytes of a Zstandard frame that are decoded with each of its blocks, rather than once a window is there.
pub const ZSTD_EARLY_BYTES: usize = 128 << 10;

/// Bytes decoded twice for that, of one body.
pub const ZSTD_EARLY_WORK_BYTES: usize = 1 << 20;

/// Memory of a Zstandard decoder: its window, blocks and tables, and what it decodes early.
pub const ZSTD_BYTES: usize = ZSTD_WINDOW_BYTES + (1 << 20);

/// Window of an LZMA content coding: more than rules see of a body.
pub const LZMA_WINDOW_BYTES: usize = 1 << 20;

/// Memory of an LZMA decoder: its window, and tables of the largest properties.
pub const LZMA_BYTES: usize = 8 << 20;

/// Other readings of an HTTP message that rules see, where clients disagree about its body; those of heads that end elsewhere,
/// two at most, come on top.
pub const HTTP_READINGS: usize = 6;

/// Bytes kept of an HTTP connection's requests without a response; responses to further ones come without their
/// request.
pub const HTTP_ASKED_BYTES: usize = 64 << 10;

/// Bytes that the codings of one HTTP message may give before `max-ratio` counts: the page of a small compressed text
/// often has a ratio of more than 100.
pub const HTTP_RATIO_FREE_BYTES: u64 = 1 << 20;

/// The same for all messages of one `http` together, because many small messages, each below its own limit, are a bomb
/// as well.
pub const HTTP_RATIO_FREE_TOTAL_BYTES: u64 = 64 * HTTP_RATIO_FREE_BYTES;

/// Most decoded bytes of one block.
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

/// Bytes of one inflating decoder: its window, its tables, and output that is not fetched yet.
pub const INFLATE_BYTES: usize = 48 << 10;

/// Bytes of one brotli decoder besides its window: three groups of up to 256 prefix codes (RFC 7932 section 10).
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

/// Secrets that one `decrypt` keeps of its key log; each takes about 120 bytes.
pub const KEYLOG_SECRETS: usize = 500_000;

/// Bytes of plain text at the beginning of a stream within which `tls` looks for a hello (STARTTLS, proxies).
pub const TLS_PREAMBLE_BYTES: u64 = 16 << 10;

/// Bytes read of a line of SMTP or FTP; the rest of the line is skipped.
pub const TEXT_LINE_BYTES: usize = 4 << 10;

/// Bytes that the filter of a conversation (`ssh`, `ftp`, `sip` and others) keeps of unfinished messages and of what was said
/// in exchanges that are not over, over all connections.
pub const TALK_BUFFERED_BYTES: usize = 64 << 20;

/// Exchanges of one connection that wait for their end, such as commands for their replies. Further ones have no record.
pub const TALK_EXCHANGES: usize = 64;

/// Bytes of a text that the record of an exchange has. What follows is cut off.
pub const TALK_TEXT_BYTES: usize = 64 << 10;

/// Items that a list in the record of an exchange has.
pub const TALK_ITEMS: usize = 64;

/// Bytes that one `smtp` keeps of lines and names, over all connections.
pub const TEXT_BUFFERED_BYTES: usize = 64 << 20;

/// Recipients of one mail that its record lists.
pub const SMTP_RECEIVERS: usize = 100;

/// Files of one mail that are given.
pub const SMTP_PARTS: usize = 1000;

/// Most data connections that one `ftp_data` waits for at a time; the one announced first makes room.
pub const FTP_EXPECTED: usize = 1 << 14;

/// Bytes of the head of a SIP message.
pub const SIP_HEAD_BYTES: usize = 64 << 10;

/// Options of one DHCP message that its record lists: routers, name servers, and those that the client asks for.
pub const DHCP_LISTED: usize = 64;

/// Bytes of the header fields of one HTTP/2 message before decoding, with continuations.
pub const HTTP2_HEAD_BYTES: usize = 128 << 10;

/// The same after decoding: a reference of one byte may stand for a field of 4 KiB.
pub const HTTP2_FIELDS_BYTES: usize = 256 << 10;

/// Most streams of one HTTP/2 connection known at a time; the one that began first makes room.
pub const HTTP2_STREAMS: usize = 1 << 10;

/// Most bytes of the table of one direction's header fields (RFC 7541, 4.2).
pub const HPACK_TABLE_BYTES: usize = 64 << 10;

/// Bytes that one `quic` keeps of hellos whose rest has not come, over all flows.
pub const QUIC_BUFFERED_BYTES: usize = 64 << 20;

/// Most directions of flows that one `quic` knows at a time; the one that began first makes room.
pub const QUIC_FLOWS: usize = 1 << 14;

/// Pieces of one QUIC hello that are kept until the ones before them come.
pub const QUIC_PIECES: usize = 64;

/// Protocols of one stack inside an application.
pub const STACK_BLOCKS: usize = 32;

/// Most turns of each protocol of a stack in one call. A protocol that wants more waits for the next call, so it cannot
/// hold up the caller.
pub const STACK_TURNS: usize = 4;

/// ARP requests that wait in a stack for their answer; further ones get none, and their senders ask again.
pub const STACK_ARP_ANSWERS: usize = 16;

/// Fewest and most bytes of a `tcp` block's send or receive buffer; a window below the minimum makes no sense.
pub const STACK_TCP_BUFFER_BYTES: (u32, u32) = (4 << 10, 16 << 20);

/// Bytes of received segments that wait for a turn of a `tcp` block: twice a usual receive window with its headers.
/// Further segments are discarded and counted, and the other side sends them again.
pub const STACK_TCP_QUEUE_BYTES: usize = 512 << 10;

/// Requests of one connection that wait for their response in `transactions`.
pub const TRANSACTIONS_WAITING: usize = 256;

/// A request without a response is given up after this long.
pub const TRANSACTION_IDLE_NS: u64 = 60 * SECOND_NS;

/// An address has the name that DNS gave it for this long at least, whatever the TTL.
pub const DNS_NAME_SECONDS: u64 = 3600;

/// Flows whose application protocol is kept for logs, until the flow's own record comes.
pub const SERVICES: usize = 1 << 20;

/// Flows' records that wait for another record to tell their protocol. The oldest of more goes without.
pub const LATE_FLOWS: usize = 1 << 16;

/// Points of all lines that `plot` keeps.
pub const PLOT_POINTS: usize = 1 << 20;

/// Lines that `plot` keeps; it draws the largest.
pub const PLOT_LINES: usize = 1 << 12;

/// Longest name or value that [`nearest`](crate::nearest()) compares, in bytes: the cost of edit distance is the
/// product of both lengths.
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

/// Bits, and numbers, that rules set for one flow.
pub const RULES_FLOW_BITS: usize = 64;

/// Bits that rules set for hosts, over all hosts.
pub const RULES_HOST_BITS: usize = 1 << 18;

/// Counts for thresholds of rules.
pub const RULES_THRESHOLDS: usize = 1 << 18;

/// Seconds without a match after which a full table forgets a count of type `backoff`. Such a count has no period.
pub const RULES_BACKOFF_SILENCE_S: u64 = 3600;

/// Steps of rules for one packet and the bytes it completes: one for each keyword, for each further place of a content,
/// and for each 64 bytes that the engine searches.
pub const RULES_STEPS: u32 = 1 << 20;

/// Last bytes of a stream that rules see at a time.
pub const RULES_WINDOW_BYTES: usize = 8 << 10;

/// Rules that wait in one direction of a stream for bytes behind their pattern.
pub const RULES_WAITING: usize = 64;

/// First bytes of each direction of a stream that rules see.
pub const RULES_STREAM_BYTES: u64 = 1 << 20;

/// First bytes of each direction that rules keep until they know the application.
pub const RULES_EARLY_BYTES: usize = 16 << 10;

/// First bytes of a body or of a file that rules see.
pub const RULES_BODY_BYTES: usize = 100 << 10;

/// Steps that the rules of one transaction take which are tried again with pieces of its bodies. Looking for patterns in the pieces
/// does not count. Steps are those of [`RULES_STEPS`]: four packets have as many.
pub const RULES_BODY_STEPS: u32 = 1 << 22;

/// Bytes of streams and transactions that rules keep, over all flows; the same number again for heads and decoders of
/// HTTP.
pub const RULES_MEMORY_BYTES: usize = 256 << 20;

/// Flows whose state rules keep.
pub const RULES_FLOWS: usize = 1 << 18;

/// Open transactions of one flow.
pub const RULES_TRANSACTIONS: usize = 64;

/// Bytes that one set of values of rules takes.
pub const RULES_DATASET_BYTES: usize = 256 << 20;

/// Bytes of a file of values that a rule names.
pub const RULES_DATASET_FILE_BYTES: usize = 128 << 20;

/// Transactions of one flow that are complete before rules are shown them: one frame may bring many.
pub const RULES_COMPLETE: usize = 1 << 10;

/// Files that one block of a stream may have in a transaction: rules look at each by itself.
pub const RULES_FILES: usize = 64;

/// Alerts of one packet.
pub const RULES_ALERTS: usize = 256;

/// Bytes that a transform of rules decompresses at most.
pub const RULES_INFLATED_BYTES: usize = 64 << 10;

/// Ports that thresholds of rules which count different ones keep, all together.
pub const RULES_UNIQUE_PORTS: usize = 1 << 20;
