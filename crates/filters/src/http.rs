//! HTTP/1.x messages out of byte streams: one message for each request and response. Chunking and content coding are
//! removed from bodies.
//!
//! Bodies are not copied: a body without coding or chunks is described by new descriptors over the capture's bytes.
//! Decoded bytes go to the filter's own ring. `http2` reads HTTP/2 and shares everything except the framing. No filter
//! reads HTTP/3.
//!
//! The conversation is in `protocols::http`.
//!
//! - `exit`: the ears of `http`, `http2` and `websocket`, and where their output goes; `row`: the schema of records;
//!   `fields`: the fields of heads as a map.

pub(crate) mod exit;
mod fields;
mod row;

use base::limits::HTTP_SEEK_BYTES;
use exit::{Common, Output, input};
use filter::kind::Example;
use filter::prelude::*;
use protocols::conversation::{Fed, Side};
use protocols::http::Conversation;
use protocols::http::shared::Shared;
pub(crate) use row::SCHEMA;

/// What `http` is.
pub static KIND: Kind = Kind::new("http", "takes HTTP/1 messages out of byte streams", make)
    .help(
        "Gives each request and each response as a message: a record of its head, then its body. The record has EVE's \
         names: `http.direction` (request or response), `http.http_method`, `http.hostname`, `http.url`, \
         `http.protocol`, `http.status`, `http.http_content_type`, `http.content_encoding`, `http.http_user_agent`, \
         `http.http_refer` and `http.filename` (of Content-Disposition); a response has method, host name and URL of the request it answers, where that was seen. \
         `http.cut` names the value that the head's end in the capture cuts, or says `head`: that value is left out, and others may be missing. \
         `http.ambiguous` says why clients disagree about the body: its length, a coding, or a status that has none. \
         The host name is without its port, the content type without its parameters.\n\n\
         `http.headers.NAME` is any field of the head, such as `http.headers.server`, and `http.cookies.NAME` any cookie, in \
         whichever case; a name may have several values. Records have them if a filter behind names one, or with \
         `headers=yes`: of each head the first 256 values and 64 KiB. In a record of `transactions` these are those of the \
         response, and `http.request_headers.NAME` and `http.request_cookies.NAME` those of the request.\n\n\
         Of the body chunking is undone, and so are the codings gzip, deflate, br and zstd, also several of them; `decode=no` \
         leaves Content-Encoding as it is. A body whose first bytes show that it is not coded or not chunked as its \
         head says is given as it came. Check sums of codings are not verified. Bodies that are not coded are not \
         copied. A message whose end is missing, whose coding is damaged or which is longer than `decoded-max` is given \
         as far as it goes and marked truncated. So is one that grows by more than `max-ratio` when it is decoded: its first \
         1 MiB is free, and so are the first 64 MiB of all messages together. A message that a limit cut has the \
         reason `limit` in its record, and the blocks of its rest count as dropped, under the limit's name. Bytes missing in the capture are missing in the body and marked, where \
         its length is known from its head; elsewhere the search for the next message begins, and is counted: \
         a message may begin with any line and with any segment.\n\n\
         A connection that does not begin like HTTP is rejected from its first bytes on, one that becomes a tunnel \
         (CONNECT, or an upgrade such as to WebSocket) from there. One that goes through a SOCKS proxy is read from \
         where the proxy is done, and one behind a header of the PROXY protocol (version 1 or 2) from behind it. One that was joined midway is searched for a message for 64 KiB in each direction. Where the request of a \
         response was not seen, and its body would begin with the first line of a response, it has no body (the request \
         was HEAD): that is the next response.",
    )
    .params(&PARAMS)
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap brotli.pcap | http | json", output: BROTLI_MESSAGES }]);

/// Shared with `http2`.
pub(crate) const PARAMS: [Param; 5] = [
    Param::new("headers", ParamType::Flag, "give all fields of heads, also where no filter names them").default("no"),
    Param::new("decode", ParamType::Flag, "undo Content-Encoding, where a filter reads bodies").default("yes"),
    Param::new("decoded-max", ParamType::Size, "decoded bytes of one message at most").default("1G"),
    Param::new("max-ratio", ParamType::Number, "decoded bytes for each coded byte at most, behind the first 1 MiB")
        .default("100"),
    Param::new(
        "memory",
        ParamType::Size,
        "bytes kept at most for heads that span blocks, for requests without a response and for decoders, of all \
         connections together",
    )
    .default("1G"),
];

const BROTLI_MESSAGES: &str = r#"{"timestamp":"2022-11-16T15:59:17.800879000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.18.38.179","src_port":52316,"dest_ip":"172.217.170.68","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.google.com","url":"/complete/search?client=chrome-omni&gs_ri=chrome-ext-ansg&xssi=t&q=&oit=0&oft=1&pgcl=20&gs_rn=42&sugkey=AIzaSyBOti4mM-6x9WDnZIjIeyEU21OpBXqWBgw","protocol":"HTTP/1.1","http_user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/107.0.0.0 Safari/537.36","length":0,"state":"complete"}}
{"timestamp":"2022-11-16T15:59:18.384807000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.217.170.68","src_port":443,"dest_ip":"172.18.38.179","dest_port":52316,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.google.com","url":"/complete/search?client=chrome-omni&gs_ri=chrome-ext-ansg&xssi=t&q=&oit=0&oft=1&pgcl=20&gs_rn=42&sugkey=AIzaSyBOti4mM-6x9WDnZIjIeyEU21OpBXqWBgw","protocol":"HTTP/1.1","status":200,"http_content_type":"text/javascript","content_encoding":"br","filename":"f.txt","length":121,"state":"complete"}}
{"timestamp":"2022-11-16T15:59:18.386947000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.18.38.179","src_port":52316,"dest_ip":"172.217.170.68","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.google.com","url":"/async/newtab_promos","protocol":"HTTP/1.1","http_user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/107.0.0.0 Safari/537.36","length":0,"state":"complete"}}
{"timestamp":"2022-11-16T15:59:18.822459000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.217.170.68","src_port":443,"dest_ip":"172.18.38.179","dest_port":52316,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.google.com","url":"/async/newtab_promos","protocol":"HTTP/1.1","status":200,"http_content_type":"application/json","content_encoding":"br","filename":"f.txt","length":1743,"state":"complete"}}
{"timestamp":"2022-11-16T15:59:18.834397000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.18.38.179","src_port":52316,"dest_ip":"172.217.170.68","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.google.com","url":"/gen_204?ei=1gh1Y_aSJJL5gQbM0pSgDg&cad=i&id=19031405&ogprm=up&ct=16&prid=243","protocol":"HTTP/1.1","http_user_agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/107.0.0.0 Safari/537.36","length":0,"state":"complete"}}
{"timestamp":"2022-11-16T15:59:19.250841000Z","flow_id":4253811943572098,"event_type":"http","src_ip":"172.217.170.68","src_port":443,"dest_ip":"172.18.38.179","dest_port":52316,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.google.com","url":"/gen_204?ei=1gh1Y_aSJJL5gQbM0pSgDg&cad=i&id=19031405&ogprm=up&ct=16&prid=243","protocol":"HTTP/1.1","status":204,"http_content_type":"text/html","length":0,"state":"complete"}}
"#;

const _: () = assert!(HTTP_SEEK_BYTES == 64 << 10, "the manual says so");

struct Http {
    common: Common,
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::session(SessionKey::Connection, Http { common: common(params) }))
}

/// The state that connections share.
pub(crate) fn common(params: &Params) -> Common {
    let shared = Shared::new(
        params.flag("decode"),
        params.number("decoded-max").unwrap_or(u64::MAX),
        params.number("max-ratio").unwrap_or(u64::MAX),
        memory(params),
    );
    let mut common = Common::new(shared, &SCHEMA);
    common.gives_fields = params.flag("headers");
    common
}

/// The parameter `memory`.
pub(crate) fn memory(params: &Params) -> usize {
    let memory = params.number("memory").unwrap_or(u64::MAX);
    usize::try_from(memory).unwrap_or(usize::MAX)
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    /// The block at which the last call stopped, if before the end of its batch.
    stopped: Option<usize>,
}

/// Whether the bytes of `next` directly follow those of `block`.
fn goes_on(block: &Descriptor, next: &Descriptor) -> bool {
    next.class == block.class && next.gap() == 0 && !next.has(Flags::FIRST) && !block.has(Flags::LAST)
}

impl SessionFilter for Http {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let from = session.stopped.take();
        let (mut out, shared) = Output::new(cx, &mut self.common);
        let mut blocks = batch.iter().peekable();
        while let Some((place, block)) = blocks.next() {
            if from.is_some_and(|from| place < from) {
                continue;
            }
            (out.place, out.block) = (place, *block);
            let more_follows = blocks.peek().is_some_and(|(_, next)| goes_on(block, next));
            let input = input(block, out.rings.bytes(block), more_follows);
            match session.conversation.feed(Side::to_server(block.class.direction() == 0), &input, shared, &mut out) {
                Fed::Mine => {}
                Fed::NotMine | Fed::HandsOn { used: 0, .. } => out.reject_block(),
                Fed::HandsOn { .. } => {}
                Fed::LeftOut { why } => out.drop_block(why),
                Fed::Full { .. } => {
                    session.stopped = Some(place);
                    return Ok(Status::More);
                }
            }
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        mut session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let time = cx.now;
        let (mut out, shared) = Output::new(cx, &mut self.common);
        for side in [Side::Client, Side::Server] {
            out.block = out.nothing(Class::of_stream(class.connection(), side.index() as u8));
            session.conversation.end(side, time, shared, &mut out);
        }
        Ok(())
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        debug_assert!(self.common.shared.is_even(), "a closed connection keeps no memory");
        Ok(Status::Done)
    }
}
