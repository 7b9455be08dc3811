//! A record of each place of a TCP stream that came twice with different bytes: both versions, and when each came.
//! Causes are an attack on the stream's reader, a broken sender or a broken capture. See `tcp` for the streams.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::origin::{self, Origins};
use crate::parts::policy;
use crate::parts::transport::Refusal;
use crate::tcp::assembler::Assembler;
use crate::tcp::conflict::Conflict;
use crate::tcp::segment::Segment;
use crate::tcp::settings::Settings;
use crate::tcp::{CHECK, CHECKSUM, settings};
use base::limits::CONFLICT_BYTES;
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use packet::frame::protocol;
use packet::malformed::Malformed;
use program::Predicate;

static SCHEMA: Schema = Schema::new(
    "anomaly",
    &eve_fields![
        Field::new("anomaly.type", FieldType::Text),
        Field::new("anomaly.event", FieldType::Text),
        Field::new("conflict.offset", FieldType::Number),
        Field::new("conflict.len", FieldType::Number),
        Field::new("conflict.differing", FieldType::Number),
        Field::new("conflict.taken", FieldType::Text),
        Field::new("conflict.taken_time", FieldType::Time),
        Field::new("conflict.other", FieldType::Text),
        Field::new("conflict.other_time", FieldType::Time),
    ],
)
.summary(&["anomaly.event", "conflict.offset", "conflict.len", "conflict.taken", "conflict.other"]);

/// What `conflicts` is.
pub static KIND: Kind = Kind::new("conflicts", "gives a record of each place of a TCP stream that has two versions", make)
    .also(&["overlaps", "anomaly", "inconsistency"])
    .help(
        "Takes frames or packets and gives a record for each range of bytes of a TCP stream that was sent twice, with different bytes: \
         `conflict.taken` is what `tcp` with the same parameters gives, `conflict.other` what it does not (4096 bytes of either \
         are shown), `conflict.taken_time` and `conflict.other_time` are when the segment with each came. \
         `conflict.offset` is where in the stream that is, `conflict.len` how many bytes, `conflict.differing` how many of them differ. `src_ip` is \
         who sent them. The words of `anomaly.` are those of Suricata's EVE.\n\n\
         Segments are compared with those that still wait, and with the last `recall` bytes of all streams that were given. The byte of a keep-alive probe may be any. To read \
         both the streams and the conflicts of one capture, let them stand side by side: `{ tcp | http | files dir=out + conflicts | json }`.",
    )
    .params(&[
        policy::POLICY,
        policy::OF_NETWORK,
        CHECKSUM,
        CHECK,
        Param::new("recall", ParamType::Size, "compare what is sent again with this many bytes that were given").default("16M"),
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .behind("decap")
    .pre_filter(|_| Some(Predicate::Protocol(Some(vec![(protocol::TCP, protocol::TCP)]))))
    .examples(&[Example { request: "pcap browse.pcap | conflicts | count", output: "{\"blocks\":0,\"bytes\":0,\"wire_bytes\":0}\n" }]);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Conflicts {
        assembler: Assembler::new(Settings { conflicts: true, ..settings(params)? }),
        origins: Origins::new(params),
        row: RowWriter::new(&SCHEMA),
    }))
}

/// Blocks that the assembler may give before they are dropped.
const ENOUGH: usize = 1000;

struct Conflicts {
    assembler: Assembler,
    origins: Origins,
    row: RowWriter,
}

impl Conflicts {
    /// Writes the conflicts of the last segment, in place of the blocks that the assembler gave since `before`.
    fn report(&mut self, time: u64, before: usize, cx: &mut Context<'_>) {
        cx.out.truncate(before);
        let Conflicts { assembler, row, .. } = self;
        for conflict in assembler.take_conflicts() {
            write(row, time, &conflict, cx);
            match cx.rings.append_copy(cx.own, &[row.row()]) {
                Some(record) => cx.emit(Descriptor { time, ..record }),
                None => cx.count("records without room", 1),
            }
        }
    }
}

fn write(row: &mut RowWriter, time: u64, conflict: &Conflict, cx: &Context<'_>) {
    let shown = |block: &Descriptor| {
        let bytes = cx.rings.bytes(block);
        &bytes[..bytes.len().min(CONFLICT_BYTES)]
    };
    begin_row(row, time, conflict.class, cx.streams.get(conflict.class));
    row.text("anomaly.type", "stream").text("anomaly.event", "stream.reassembly_overlap_different_data");
    row.number("conflict.offset", conflict.offset);
    row.number("conflict.len", conflict.taken.len.min(conflict.other.len).into());
    row.number("conflict.differing", conflict.bytes);
    row.text("conflict.taken", shown(&conflict.taken)).time("conflict.taken_time", conflict.taken.time);
    row.text("conflict.other", shown(&conflict.other)).time("conflict.other_time", conflict.other.time);
}

impl Filter for Conflicts {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.origins.begin_batch();
        for place in places(batch.live()) {
            let frame = batch.block(place);
            let Some(origin) = self.origins.of(cx.rings, frame) else {
                cx.drop(1, Malformed::UnsupportedLink.reason());
                continue;
            };
            let bytes = cx.rings.bytes(frame);
            match Segment::read(&self.origins, origin, bytes, frame.wire()) {
                Ok(mut segment) => {
                    self.assembler.check(&mut segment, frame, bytes);
                    let before = cx.out.len();
                    if let Err(reason) = self.assembler.segment(&segment, frame, cx) {
                        cx.drop(1, reason);
                    }
                    self.report(frame.time, before, cx);
                }
                Err(Refusal::Other) => cx.reject(place),
                Err(Refusal::Tunnel(reason)) => cx.reject_unread(place, reason),
                Err(Refusal::Dropped(reason)) => cx.drop(1, reason),
            }
        }
        cx.wake_at(self.assembler.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        while self.assembler.expire(ENOUGH, cx) == Status::More {
            cx.out.clear();
        }
        cx.out.clear();
        cx.wake_at(self.assembler.next_due());
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        while self.assembler.finish(ENOUGH, cx) == Status::More {
            cx.out.clear();
        }
        cx.out.clear();
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;
    use testkit::packets::{CLIENT, Conversation, SERVER, flag};

    /// Each row: the client's segments as (position, bytes), the policy, and the records: offset, taken, other, and
    /// the frame of each.
    #[test]
    fn both_versions_are_told() {
        type Told<'a> = (u64, &'a str, &'a str, [u64; 2]);
        type Case<'a> = (&'a [(i64, &'a str)], &'a str, &'a [Told<'a>]);
        let rows: [Case<'_>; 6] = [
            (&[(0, "GOOD"), (0, "GOOD"), (3, "?"), (2, "ODD")], "first", &[]),
            (&[(0, "GOOD"), (0, "EVIL")], "first", &[(0, "GOOD", "EVIL", [3, 4])]),
            (&[(0, "GOOD"), (1, "YYY")], "last", &[(1, "OOD", "YYY", [3, 4])]),
            (&[(4, "GOOD"), (2, "ZZZZZZ"), (0, "12")], "first", &[(4, "GOOD", "ZZZZ", [3, 4])]),
            (&[(4, "GOOD"), (2, "ZZZZZZ"), (0, "12")], "bsd", &[(4, "ZZZZ", "GOOD", [4, 3])]),
            (&[(2, "ab"), (6, "cd"), (0, "12xb56cx")], "first", &[(2, "ab", "xb", [3, 5]), (6, "cd", "cx", [4, 5])]),
        ];
        for (segments, policy, expected) in rows {
            let mut c = Conversation::open(CLIENT, SERVER, u32::MAX - 2);
            for (offset, payload) in segments {
                let frame = c.segment(0, *offset, flag::ACK, payload.as_bytes());
                c.push(frame);
            }
            let outcome = Chain::frames(1, &c.frames).then(&KIND, &[("policy", policy)]).run();
            let rows = outcome.blocks.iter().map(|block| Row::new(&SCHEMA, &block.bytes).unwrap());
            let text = |row: &Row<'_>, name| String::from_utf8(row.text(name).unwrap().to_vec()).unwrap();
            let told: Vec<_> = rows
                .map(|row| {
                    assert_eq!(row.number("src_port"), Some(CLIENT.1.into()));
                    let times = ["conflict.taken_time", "conflict.other_time"];
                    let frames = times.map(|name| row.number(name).unwrap() / 1_000_000);
                    let offset = row.number("conflict.offset").unwrap();
                    (offset, text(&row, "conflict.taken"), text(&row, "conflict.other"), frames)
                })
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(at, taken, other, frames)| (*at, (*taken).into(), (*other).into(), *frames))
                .collect();
            assert_eq!(told, expected, "{segments:?} {policy}");
        }
    }

    #[test]
    fn what_is_forgotten_is_not_compared() {
        let mut c = Conversation::open(CLIENT, SERVER, 1);
        c.send(0, b"GOOD").send(0, &[b'x'; 100]);
        let again = c.segment(0, -104, flag::ACK, b"EVIL");
        c.push(again);
        let told = |recall| Chain::frames(1, &c.frames).then(&KIND, &[("recall", recall)]).run();
        assert_eq!((told("200").blocks.len(), told("100").blocks.len(), told("0").blocks.len()), (1, 0, 0));
        assert_eq!(told("100").counters("conflicts").events.get("given bytes forgotten"), 4);
    }
}
