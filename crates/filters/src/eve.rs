//! Writes flows and application records as one log in the format of Suricata's EVE.
//!
//! - `eve/schema.rs` — the events, as Suricata's schema has them.
//! - `eve/events.rs` — which record becomes which event.
//!
//! Other filters make the records; the planner puts all of them in front when the input is frames. `json` writes
//! records unchanged, with more fields than EVE has.

pub mod events;
pub mod schema;

use crate::parts::ending;
use crate::parts::json_row::RowShapes;
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use events::Events;
use filter::prelude::*;

/// What `eve` is.
pub static KIND: Kind = Kind::new("eve", "writes flows, HTTP, files, DNS, TLS and others as one log in Suricata's format", make)
    .also(&["suricata", "evelog"])
    .help(
        "`pcap x | eve` writes one JSON object a line, as Suricata's EVE log has them: `flow`, `http` (a request with its \
         response), `fileinfo` (a body of either, or a file of SMB), `dns`, `tls`, `ssh`, `smb`, `smtp`, `ftp` and `sip` events, with no other fields than \
         Suricata's schema has. Before frames it stands for `{ flows + http | transactions + tls | transactions + dns + ssh + \
         smb | transactions + smtp | transactions + ftp + sip } | eve`: write that out to give these filters parameters (`transactions hash=yes` for `fileinfo.sha256`), or to leave some out.\n\n\
         Events come in the order in which they end: a flow when it is over, the others when their response came. A flow in which \
         no protocol was read yet waits for 61 s, for a request without an answer, unless nothing but flows comes. The time \
         of an event is that of its request, of a flow that of its last packet, of a file that of its last byte. A file's \
         name is that of Content-Disposition, else the path that was asked for. Nothing is stored: `files` does that. Records that EVE has no event for \
         are dropped and counted.",
    )
    .params(&[
        Param::new("file", ParamType::Path, "file to write to; standard output if not given, or if it is -").main(),
        Lines::OVERWRITE,
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record])
    .wants(&[(Type::Frame, RECORDS), (Type::Packet, RECORDS), (Type::Message, "transactions")])
    .mode(Mode::Serial)
    .sink()
    .completes(|params| ending::check(params, "file", ending::JSON))
    .examples(&[Example { request: "pcap tls.pcap | eve", output: BEHIND_A_PROXY }]);

/// The filters that make the records out of frames.
const RECORDS: &str = "{ flows + http | transactions + tls | transactions + dns + ssh + smb | transactions + smtp | transactions + ftp + sip }";

const BEHIND_A_PROXY: &str = r#"{"timestamp":"2019-09-02T18:56:53.410289+0000","flow_id":5507001706100995,"event_type":"http","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","http":{"http_method":"CONNECT","url":"ts01-b.cloudsink.net:443","protocol":"HTTP/1.0","status":200,"http_user_agent":"CrowdStrike Falcon Sensor","length":0}}
{"timestamp":"2019-09-02T18:56:53.473730+0000","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","tls":{"version":"TLS 1.2","ja3":{"hash":"b288289af2999820648eb3ca4d8304c5","string":"771,49200-49196-49192-49188-49172-49162-165-163-161-159-107-106-105-104-57-56-55-54-136-135-134-133-49202-49198-49194-49190-49167-49157-157-61-53-132-49199-49195-49191-49187-49171-49161-164-162-160-158-103-64-63-62-51-50-49-48-154-153-152-151-69-68-67-66-49201-49197-49193-49189-49166-49156-156-60-47-150-65-49170-49160-22-19-16-13-49165-49155-10-7-49169-49159-49164-49154-5-4-255,11-10-35-13-15,23-25-24-22,0-1-2"},"ja3s":{"hash":"b7bd51222a09f3ad66a340710ae9c01a","string":"771,49200,35-65281"},"ja4":"t12i860500_e18388e7f3a3_a1e935682795","subject":"C=US, ST=California, L=Irvine, O=CrowdStrike, Inc., CN=lfoup01-b.cloudsink.net","issuerdn":"C=US, O=DigiCert Inc, OU=www.digicert.com, CN=DigiCert SHA2 High Assurance Server CA","serial":"04:8D:39:8C:BD:9D:68:C8:7E:1B:A3:EC:99:C2:B0:7D","fingerprint":"1c:8a:39:c5:f7:18:dd:cb:6c:e0:da:9c:53:f9:c1:36:d2:37:15:07","notbefore":"2017-05-25T00:00:00","notafter":"2020-05-29T12:00:00"}}
{"timestamp":"2019-09-02T18:56:53.614664+0000","flow_id":5507001706100995,"event_type":"flow","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","app_proto":"http","community_id":"1:sFCNFHlziFG+4mKUlz6T9fm4bYU=","flow":{"pkts_toserver":8,"pkts_toclient":10,"bytes_toserver":967,"bytes_toclient":4459,"start":"2019-09-02T18:56:53.383129+0000","end":"2019-09-02T18:56:53.614664+0000","age":0,"state":"established","reason":"shutdown"},"tcp":{"tcp_flags":"1a","tcp_flags_ts":"1a","tcp_flags_tc":"1a"}}
"#;

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let schemas = schema::ALL.into();
    Ok(Instance::filter(Eve {
        lines: Lines::new(params, env)?,
        events: Events::new(params, env),
        shapes: RowShapes::new(&Env { schemas, ..env.clone() }),
    }))
}

struct Eve {
    lines: Lines,
    events: Events,
    shapes: RowShapes,
}

impl Filter for Eve {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let Eve { lines, events, shapes } = self;
            let mut status = Ok(Status::Done);
            let is_event = events.make(block, cx, |row| append(lines, shapes, row, &mut status));
            if !is_event {
                cx.drop(1, "no event of EVE");
            } else if status? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        cx.wake_at(self.events.next_due());
        self.lines.batch_done(cx)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let status = self.late_flows(cx.now)?;
        cx.wake_at(self.events.next_due());
        Ok(status)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.late_flows(u64::MAX)?;
        self.lines.flush(cx)
    }
}

impl Eve {
    /// Writes the events of flows that waited long enough.
    fn late_flows(&mut self, now: u64) -> Made {
        let Eve { lines, events, shapes } = self;
        let mut status = Ok(Status::Done);
        events.late_flows(now, |row| append(lines, shapes, row, &mut status));
        status
    }
}

/// Adds the line of an event. `status`: that of the lines before, and then of all.
fn append(lines: &mut Lines, shapes: &mut RowShapes, row: &[u8], status: &mut Made) {
    if shapes.append(lines.buffer(), row, None) && *status == Ok(Status::Done) {
        *status = lines.line_done();
    }
}
