//! Intrusion prevention: frames that no rule stops pass to the bridge; alerts become records.
//!
//! A frame is judged within its batch, after everything that it completes was inspected. A passing frame is rejected
//! (`|!`): the block stays the same and in order. A frame ends here if a rule stops it, or if its receiver would see
//! it otherwise than the rules do.
//!
//! - `rules/inspector.rs` — matching; `decap.rs` — tunnels and fragments.
//! - `rules/reload.rs` — rules that change while frames pass.
//! - `ips/reset.rs` — resets to the ends of a stopped connection; `ips/drops.rs` — records of dropped frames.

mod drops;
mod reset;
#[cfg(test)]
mod tests;

use crate::rules::inspector::{FragmentEvent, Inspector, Met, SPLIT};
use crate::rules::midstream::{MIDSTREAM, Midstream};
use crate::rules::reload::Reloaded;
use crate::rules::row;
use ::rules::engine::Verdict;
use filter::batch::places;
use filter::prelude::*;
use filters::decap::{self, Decap, Fate, Outer};
use filters::parts::origin::{self, Origins};
use filters::parts::select::Links;
use filters::tcp::URGENT;
use filters::tcp::settings::{Checksums, Settings, Urgent};
use packet::link::LinkType;
use reset::Resets;
use std::sync::Arc;

/// What `ips` is.
pub static KIND: Kind = Kind::new("ips", "stops frames by rules of intrusion prevention", make)
    .also(&["prevention", "nfqueue"])
    .help(
        "`bridge a b | ips rules=FILE` lets frames pass between two devices, but for those that rules with `drop` or `reject` match; \
         alerts are records, and so are drops. Rules are in the language of the filter `rules`, whose `threshold`, `order`, `home-net` and `refused` mean \
         the same here. A rule that matches a stream or a message stops the \
         whole flow. No frame waits: segments and fragments out of order pass at once, and what completes them is judged with all \
         of them. A frame with other bytes for a place that has passed already is dropped, so that rules and receiver see the same; so is one \
         for which there is no room ahead of a hole, for to make room is to forget what passed.\n\
         \n\
         The file is looked at twice a second. When it has changed, its rules are loaded meanwhile and take over between two \
         batches; flows stay. A file with mistakes changes nothing, and is reported; so does one that is empty, gone, or no file.\n\
         \n\
         fail=closed drops frames that cannot be judged: segments and fragments that a receiver refuses as well, packets of which \
         a rule that may stop them took too much work, and messages that rules see in part: heads of HTTP over 300 KiB, more than eight codings, bytes behind a \
         response that no request asked for, a switch of protocols that none asked for. fail=open lets them pass. dropped=reset tells both ends of a stopped TCP connection by resets; \
         a `reject` rule does in any case.\n\n\
         Streams are without urgent bytes, as Linux gives them to a program that does not ask for them. Where that depends on when the \
         program reads, as for the second urgent byte of a connection, fail=closed drops the segment. `urgent=inline` is for servers that \
         keep these bytes in the stream. What passes goes along `|!`, where the request says so.",
    )
    .params(&[
        Param::new("rules", ParamType::Text, "file of rules").required().main(),
        crate::rules::PARTIAL,
        crate::rules::REFUSED,
        crate::rules::THRESHOLD,
        crate::rules::ORDER,
        crate::rules::HOME_NET,
        Param::new("vars", ParamType::List, "variables of the rules, each NAME=VALUE"),
        Param::new("fail", ParamType::Choice(&["closed", "open"]), "what cannot be judged is dropped, or passes")
            .default("closed"),
        Param::new("recall", ParamType::Size, "keep this many bytes that passed, to compare what is sent again").default("16M"),
        Param::new("dropped", ParamType::Choice(&["silent", "reset"]), "answer to the ends of a stopped connection")
            .default("silent"),
        Param::new("devices", ParamType::List, "between which it is, and where resets go out; those of the bridge if not given"),
        URGENT.default("oob"),
        MIDSTREAM,
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame])
    .gives_records(&row::SCHEMA)
    .gives_also(&drops::SCHEMA)
    .passes_rejects()
    .sees_all()
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .runs_in(Spaces::APP);

/// The drop reason of later frames of a stopped flow.
const OF_STOPPED: &str = "of a stopped flow";

/// Number of records at which a call stops.
const ENOUGH: usize = 1000;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    // It watches from before the first load on.
    let reloaded = Reloaded::new("rules", params)?;
    let set = crate::rules::load("rules", params)?;
    let left_out = crate::rules::left_out(&set);
    let keep_given = params.number("recall").unwrap_or_default();
    // A bridge has completed all checksums, so a frame with an open one is wrong and its receiver drops it.
    let checksums = if params.list("devices").is_empty() { Checksums::Auto } else { Checksums::Yes };
    // A frame with doubtful data would pass before its data counts, so the inspector holds no data in doubt.
    let is_closed = params.text("fail") != Some("open");
    let urgent = Urgent::of(params.text(URGENT.key), is_closed);
    let settings = Settings { keep_given, checksums, urgent, doubts: false, ..Settings::default() };
    let origins = Origins::new(params).between(params.list("devices"));
    let mut inspector = Inspector::with(Arc::new(set), origins, settings);
    inspector.midstream = Midstream::of(params);
    let mut decap = decap::usual()?;
    decap.refuse_newcomers();
    decap.show_outer();
    Ok(Instance::filter(Ips {
        inspector,
        decap,
        links: Links::default(),
        is_closed,
        resets_all: params.text("dropped") == Some("reset"),
        reloaded,
        resets: Resets::open(params.list("devices"))?,
        dealt_with: 0,
        row: RowWriter::new(&drops::SCHEMA),
        left_out,
    }))
}

struct Ips {
    inspector: Inspector,
    decap: Decap,
    links: Links,
    is_closed: bool,
    resets_all: bool,
    reloaded: Reloaded,
    resets: Resets,
    /// Blocks of the current batch that are finished, one bit each.
    dealt_with: u64,
    row: RowWriter,
    /// The notice about rules that were left out, until it is given.
    left_out: Option<String>,
}

impl Ips {
    /// Asks for the next timer.
    fn wake(&self, cx: &mut Context<'_>) {
        cx.wake_at(self.inspector.next_due().min(self.decap.next_due()).min(self.reloaded.next_due(cx)));
    }

    /// Takes rules that changed.
    fn reload(&mut self, cx: &mut Context<'_>) {
        self.reloaded.apply("ips", &mut self.inspector, &mut self.left_out, cx);
    }

    /// Whether a frame may pass. The error is the reason why not.
    #[inline]
    fn judge(&mut self, frame: &Descriptor, cx: &mut Context<'_>) -> Result<(), &'static str> {
        let judged = self.look(frame, cx);
        if judged.is_err() {
            self.decap.stop_last(cx.rings);
        }
        judged
    }

    /// Whether a frame may pass, given what it carries and completes. The error is the reason why not.
    #[inline]
    fn look(&mut self, frame: &Descriptor, cx: &mut Context<'_>) -> Result<(), &'static str> {
        let Some(link) = self.links.of(cx.rings, frame) else { return Ok(()) };
        let fate = self.decap.frame(link, frame, cx);
        if let Some(reason) = self.decap.refusal() {
            return Err(reason);
        }
        // Rules may also name the ends of a tunnel, and see a fragment's IP header. The fragment that completes a
        // packet is judged with the packet.
        let event = FragmentEvent::of(&fate, &self.decap);
        for at in 0..self.decap.outer().len() {
            let Outer { block, is_fragment } = self.decap.outer()[at];
            if is_fragment {
                self.inspector.expect_fragment(event);
            }
            self.ask(&block, frame, link, cx)?;
        }
        let judged = match fate {
            Fate::Passes => self.ask(frame, frame, link, cx),
            Fate::Becomes(block) => self.ask(&block, frame, link, cx),
            Fate::Kept => Ok(()),
            Fate::Dropped(reason) if self.is_closed => Err(reason),
            Fate::Dropped(_) => Ok(()),
        };
        judged?;
        match self.decap.unread() {
            Some(reason) if self.is_closed => Err(reason),
            _ => Ok(()),
        }
    }

    /// Whether `frame` may pass, given `block`: its own bytes or a packet inside it. The error is the reason why not.
    #[inline]
    fn ask(
        &mut self,
        block: &Descriptor,
        frame: &Descriptor,
        link: LinkType,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let verdict = self.inspector.frame(block, cx);
        let Met { refused, contradicts, cut_short, flow_dropped, split } = self.inspector.met();
        let (source, target) = match verdict {
            Verdict::Pass => {
                return match refused {
                    _ if contradicts => Err("contradicts one that passed"),
                    Some(reason) if self.is_closed => Err(reason),
                    None if split && self.is_closed => Err(SPLIT),
                    None => match cut_short.filter(|_| self.is_closed) {
                        Some(reason) => {
                            self.inspector.stop_last(cx);
                            Err(reason)
                        }
                        None => Ok(()),
                    },
                    _ => Ok(()),
                };
            }
            Verdict::Drop => (self.resets_all, self.resets_all),
            Verdict::Reject { source, target } => (source || self.resets_all, target || self.resets_all),
        };
        if source || target {
            self.resets.add(frame, link, [source, target], cx);
        }
        Err(if flow_dropped { OF_STOPPED } else { "stopped by a rule" })
    }
}

impl Filter for Ips {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.dealt_with == 0 {
            self.reload(cx);
            self.resets.send(cx);
            self.links = Links::default();
            self.inspector.begin_batch();
        }
        for place in places(batch.live() & !self.dealt_with) {
            if cx.out.len() >= ENOUGH {
                return Ok(Status::More);
            }
            self.dealt_with |= 1 << place;
            match self.judge(batch.block(place), cx) {
                Ok(()) => cx.reject(place),
                Err(why) => {
                    cx.drop(1, why);
                    if why != OF_STOPPED {
                        let link = self.links.of(cx.rings, batch.block(place)).unwrap_or(LinkType::ETHERNET);
                        drops::tell(&mut self.row, batch.block(place), link, why, &self.inspector, cx);
                    }
                }
            }
        }
        self.dealt_with = 0;
        self.wake(cx);
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        if self.dealt_with == 0 {
            self.reload(cx);
        }
        self.decap.expire(cx);
        let status = self.inspector.expire(ENOUGH, cx);
        self.wake(cx);
        Ok(status)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.wake(cx);
        self.resets.send(cx);
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.resets.send(cx);
        self.decap.end(cx);
        Ok(self.inspector.finish(ENOUGH, cx))
    }
}
