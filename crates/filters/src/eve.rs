//! Writes flows, HTTP, files, DNS and TLS as one log in the format of Suricata's EVE.
//!
//! - `eve/schema.rs` — the events, as Suricata's schema has them.
//! - `eve/events.rs` — which record becomes which event.
//!
//! The records are those of other filters; before frames the planner puts in all of them. `json` writes records as they are:
//! with more fields than EVE has.

mod events;
mod schema;

use crate::parts::json_row::RowShapes;
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use events::Events;
use filter::prelude::*;

/// What `eve` is.
pub static KIND: Kind = Kind::new("eve", "writes flows, HTTP, files, DNS and TLS as one log in Suricata's format", make)
    .also(&["suricata", "evelog"])
    .help(
        "`pcap x | eve` writes one JSON object a line, as Suricata's EVE log has them: `flow`, `http` (a request with its \
         response), `fileinfo` (a body of either), `dns` and `tls` events, with no other fields than Suricata's schema has. \
         Before frames it stands for `{ flows + http | transactions + tls | transactions + dns } | eve`: write that out to \
         give these filters parameters (`transactions hash=yes` for `fileinfo.sha256`), or to leave some out.\n\n\
         Events come in the order in which they end: a flow when it is over, the others when their response came. The time \
         of an event is that of its request, of a flow that of its last packet, of a file that of its last byte. Of a file's \
         name the log has the path that was asked for. Nothing is stored: `files` does that. Records that EVE has no event for \
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
    .examples(&[Example { request: "pcap tls.pcap | eve", output: BEHIND_A_PROXY }]);

/// What makes records of frames.
const RECORDS: &str = "{ flows + http | transactions + tls | transactions + dns }";

const BEHIND_A_PROXY: &str = r#"{"timestamp":"2019-09-02T18:56:53.410289+0000","flow_id":5507001706100995,"event_type":"http","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","http":{"url":"ts01-b.cloudsink.net:443","http_user_agent":"CrowdStrike Falcon Sensor","http_method":"CONNECT","protocol":"HTTP/1.0","status":200,"length":0}}
{"timestamp":"2019-09-02T18:56:53.473730+0000","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","tls":{"version":"TLS 1.2"}}
{"timestamp":"2019-09-02T18:56:53.614664+0000","flow_id":5507001706100995,"event_type":"flow","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","app_proto":"http","community_id":"1:sFCNFHlziFG+4mKUlz6T9fm4bYU=","flow":{"pkts_toserver":8,"pkts_toclient":10,"bytes_toserver":967,"bytes_toclient":4459,"start":"2019-09-02T18:56:53.383129+0000","end":"2019-09-02T18:56:53.614664+0000","age":0,"state":"established","reason":"shutdown"},"tcp":{"tcp_flags":"1a","tcp_flags_ts":"1a","tcp_flags_tc":"1a"}}
"#;

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let schemas = schema::ALL.into();
    Ok(Instance::filter(Eve {
        lines: Lines::new(params, env)?,
        events: Events::new(env),
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
            let bytes = cx.rings.bytes(block);
            let mut status = Ok(Status::Done);
            let is_event = events.make(bytes, cx.counters, |row| {
                if shapes.append(lines.buffer(), row, None) && status == Ok(Status::Done) {
                    status = lines.line_done();
                }
            });
            if !is_event {
                cx.drop(1, "no event of EVE");
            } else if status? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }
}
