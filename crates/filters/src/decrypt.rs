//! Decrypts TLS by a key log, so that the filters behind it read what the ends said.
//!
//! `protocols::tls::decrypt` has the records and keys; `decrypt/keylog.rs` reads the log.

mod keylog;
#[cfg(test)]
mod tests;

use crate::parts::outlet::Outlet;
use crate::parts::system::reason;
use base::limits::{KEYLOG_SECRETS, TLS_BUFFERED_BYTES};
use base::terminal;
use filter::prelude::*;
use keylog::KeyLog;
use protocols::carry::Carried;
use protocols::conversation::Side;
use protocols::tls::decrypt::{Connection, Ends, Label, Secret};
use std::path::Path;

/// What `decrypt` is.
pub static KIND: Kind = Kind::new("decrypt", "decrypts TLS by a key log, and passes other streams", make)
    .also(&["sslkeylog", "keylog", "untls"])
    .beside("tls", "reads hellos and certificates")
    .help(
        "Takes byte streams and gives byte streams. Where a stream is TLS and the key log has its secrets, what comes out is what the ends \
         said, for `http`, `http2` and other filters: `tcp | decrypt keylog=FILE | http`. Streams without TLS go through as they are, and so does what stands \
         before a hello, such as STARTTLS or a request to a proxy.\n\n\
         A key log is the file that browsers, curl, and programs with OpenSSL, NSS, BoringSSL or rustls write if the variable SSLKEYLOGFILE names it. It \
         is read as it grows: on a device, records that come before their secret wait for it, up to 64 KiB a direction. Read are \
         TLS 1.3, with updates of keys, and TLS 1.2 with AES-GCM or ChaCha20-Poly1305, also where a session is resumed or negotiated again. Early data (0-RTT), \
         other ciphers (CBC) and versions are not decrypted.\n\n\
         Nothing encrypted comes out. It counts by reason what it did not decrypt: records, bytes, and connections without a secret. Where bytes are missing within one record, the contents of that \
         record are missing; where more are missing, nothing more of the direction is read. Of a log the last 500,000 secrets are kept, in 60 MiB. QUIC is not decrypted.",
    )
    .params(&[Param::new("keylog", ParamType::Text, "file of secrets, as SSLKEYLOGFILE has them").required().main()])
    .takes(&[Type::Bytes])
    .gives(Type::Bytes)
    .mode(Mode::Session(SessionKey::Connection))
    .runs_in(Spaces::APP)
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: EXAMPLE, output: PAGES }]);

const EXAMPLE: &str = "pcap https.pcap | decrypt https.keys | { http + http2 } | transactions | fields http.url http.protocol http.status";

const PAGES: &str = "\
http.url\thttp.protocol\thttp.status
/page.html\tHTTP/1.1\t200
/data.json\tHTTP/1.1\t200
/page.html\tHTTP/2\t200
/data.json\tHTTP/2\t200
/page.html\tHTTP/1.1\t200
/data.json\tHTTP/1.1\t200
";

const _: () = assert!(KEYLOG_SECRETS == 500_000, "the manual says so");

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let path = Path::new(params.text("keylog").unwrap_or_default());
    let log = KeyLog::open(path).map_err(|error| {
        let message = format!("cannot read {}: {}", terminal::name(path), reason(&error));
        ParamError { key: Some("keylog"), ..ParamError::system(message) }
    })?;
    let carried = Carried::new(TLS_BUFFERED_BYTES);
    Ok(Instance::session(SessionKey::Connection, Decrypt { log, carried, scratch: Vec::new() }))
}

struct Decrypt {
    log: KeyLog,
    /// Parts of records of all connections.
    carried: Carried,
    /// The contents of a record.
    scratch: Vec<u8>,
}

#[derive(Default)]
struct Session {
    connection: Connection,
    /// Of each direction: a block came out.
    began: [bool; 2],
}

/// Where contents go.
struct Exit<'e, 'o> {
    log: &'e mut KeyLog,
    outlet: &'e mut Outlet<'o>,
    began: &'e mut [bool; 2],
    time: u64,
    class: Class,
}

impl Exit<'_, '_> {
    fn push(&mut self, mut block: Descriptor, flags: Flags) {
        let began = &mut self.began[usize::from(block.class.direction())];
        block.add_flags(if std::mem::replace(began, true) { flags } else { flags.with(Flags::FIRST) });
        self.outlet.push(block);
    }
}

impl Ends for Exit<'_, '_> {
    fn secret(&mut self, random: &[u8; 32], label: Label) -> Option<Secret> {
        let secret = self.log.find(random, label);
        let left_out = self.log.take_left_out();
        if left_out > 0 {
            self.outlet.count("secrets of the key log left out", left_out);
        }
        secret
    }

    fn contents(&mut self, side: Side, bytes: &[u8], gap: u32) {
        let class = Class::of_stream(self.class.connection(), side.index() as u8);
        match self.outlet.copied(bytes, self.time, class) {
            Some(mut block) => {
                block.set_wire(block.len.saturating_add(gap));
                self.push(block, if gap > 0 { Flags::GAP_BEFORE } else { Flags::NONE });
            }
            None => self.outlet.count("tls records too long", 1),
        }
    }

    fn count(&mut self, event: &'static str, count: u64) {
        if count > 0 {
            self.outlet.count(event, count);
        }
    }
}

impl SessionFilter for Decrypt {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let Decrypt { log, carried, scratch } = self;
        let Session { connection, began, .. } = session;
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            let bytes = outlet.bytes(block);
            let side = Side::to_server(block.class.direction() == 0);
            if !connection.takes(side, bytes) {
                began[side.index()] = true;
                outlet.push(*block);
                continue;
            }
            let mut exit = Exit { log, outlet: &mut outlet, began, time: block.time, class: block.class };
            connection.retry(carried, scratch, &mut exit);
            connection.feed(side, bytes, block.gap(), carried, scratch, &mut exit);
            if block.has(Flags::LAST) {
                let is_cut = connection.end(side, carried, scratch, &mut exit) || block.has(Flags::TRUNCATED);
                let end = exit.outlet.nothing(block.time, block.class);
                exit.push(end, if is_cut { Flags::LAST.with(Flags::TRUNCATED) } else { Flags::LAST });
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
        let Decrypt { log, carried, scratch } = self;
        let time = cx.now;
        let mut outlet = Outlet::new(cx);
        let mut exit = Exit { log, outlet: &mut outlet, began: &mut session.began, time, class };
        for side in [Side::Client, Side::Server] {
            session.connection.end(side, carried, scratch, &mut exit);
        }
        Ok(())
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        debug_assert_eq!(self.carried.bytes(), 0, "a closed connection keeps no memory");
        Ok(Status::Done)
    }
}
