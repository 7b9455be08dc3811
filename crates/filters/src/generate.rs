//! Makes frames from a template whose fields vary, or gives the frames of a capture. As fast as possible, or at a pace.
//!
//! - `generate/template.rs` — a frame, and its varying fields; `generate/values.rs` — the values of a field.
//! - `parts/pace.rs` — when frames are due; `pcap/memory.rs` — the frames of a capture.
//!
//! The frames of a pull lie in memory that is filled once. Each further pull writes only the varying fields, and gives the
//! same memory again.

mod template;
#[cfg(test)]
mod tests;
mod values;

use crate::parts::pace::{Cost, Pacer};
use crate::pcap::memory::{Limits, Replay};
use base::limits::PULL_BLOCKS;
use buffer::{Interface, SegmentId, ViewId};
use capture::clock;
use filter::prelude::*;
use packet::link::LinkType;
use template::Template;
pub(crate) use template::{MAGIC, NUMBER_BYTES};
pub(crate) use values::Random;

/// What `generate` is.
pub static KIND: Kind = Kind::new("generate", "makes frames, or gives those of a capture, at a pace", make)
    .help(
        "`generate count=1M | send veth0` sends a million frames of 64 bytes: UDP over IPv4 with correct lengths and \
         checksums, from 198.18.0.1 to 198.19.0.1, port 9 (RFC 2544). `size` counts as captures do, without the four bytes of \
         check sequence that a device adds; `size=imix` is the mix of RFC 6985. Addresses of version 6 make it IPv6.\n\
         \n\
         A field has one value, `dst-port=1000..1999` one value after the other and then again, `dst-port=random:1000..1999` \
         one by chance for each frame, the same for the same `seed`. For addresses `dst=10.0.0.0/24` is a range as well. Each \
         field goes on by itself.\n\
         \n\
         Frames are numbered from 0 in the first 16 bytes of their payload, as those of the kernel's pktgen are, with the time \
         at which they were made; `sequence` checks that all come. `sequence=no` leaves that out.\n\
         \n\
         Without a pace frames come as fast as what follows takes them. rate=100k is frames a second, bits=1G bits of those \
         frames a second, burst=32 has 32 go together. In between it sleeps; `set wait=adaptive` keeps to the time by \
         some microseconds, and `set wait=busy` never sleeps. What follows and is slower than the pace delays the frames: that is \
         said in the end, and every frame is sent.\n\
         \n\
         file=x.pcap gives a capture's frames instead, from memory, with the gaps they were captured with or at the pace \
         that is set, with the time at which they are given; loop=0 begins again and again. What is about a frame's content \
         (`size`, addresses, ...) then has no meaning and is refused. `pcap x.pcap memory=yes` gives them without a pace.",
    )
    .params(&[
        Param::new("protocol", ParamType::Choice(&["udp", "tcp", "icmp"]), "protocol of the frames").default("udp").main(),
        Param::new("size", ParamType::Text, "bytes of a frame: 64, 64..1514, random:64..1514, imix").default("64"),
        Param::new("count", ParamType::Number, "frames in all; 0 = until it is stopped").default("0"),
        Param::new("duration", ParamType::Duration, "ends after so long; 0 = when `count` or `loop` says").default("0"),
        Param::new("rate", ParamType::Number, "frames a second"),
        Param::new("bits", ParamType::Number, "bits of frames a second"),
        Param::new("burst", ParamType::Number, "frames that go together, with rate or bits"),
        Param::new("src", ParamType::Text, "source address"),
        Param::new("dst", ParamType::Text, "destination address"),
        Param::new("src-port", ParamType::Text, "source port; 49152 if not given"),
        Param::new("dst-port", ParamType::Text, "destination port; 9 if not given"),
        Param::new("src-mac", ParamType::Text, "Ethernet source address; 02:00:00:00:00:01 if not given"),
        Param::new("dst-mac", ParamType::Text, "Ethernet destination address; 02:00:00:00:00:02 if not given"),
        Param::new("vlan", ParamType::Text, "VLAN identifier of a tag; no tag if not given"),
        Param::new("ttl", ParamType::Number, "time to live; 64 if not given"),
        Param::new("sequence", ParamType::Flag, "number the frames").default("yes"),
        Param::new("fill", ParamType::Choice(&["zeroes", "random"]), "the rest of the payload").default("zeroes"),
        Param::new("seed", ParamType::Number, "what chance begins with").default("1"),
        Param::new("file", ParamType::Path, "a capture whose frames are given instead"),
        Param::new("loop", ParamType::Number, "how often the capture is given; 0 = until it is stopped").default("1"),
    ])
    .source(Type::Frame)
    .runs_in(Spaces::APP)
    .examples(&[
        Example {
            request: "generate count=1200 size=imix dst-port=1000..1099 | port |1005 count",
            output: "{\"blocks\":12,\"bytes\":2840,\"wire_bytes\":2840}",
        },
    ]);

/// Parameters of a template. The source refuses them beside a capture.
const OF_TEMPLATES: [&str; 8] = ["src", "dst", "src-port", "dst-port", "src-mac", "dst-mac", "vlan", "ttl"];

/// Limit of the frames of one pull, in bytes, so that they stay in a processor's cache.
const IMAGE_BYTES: usize = 256 << 10;

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    if params.text("file").is_some() {
        if let Some(key) = OF_TEMPLATES.into_iter().find(|key| params.get(key).is_some()) {
            return Err(ParamError::new(
                key,
                format!("frames of a capture are given as they are, whatever `{key}` says"),
            )
            .with_help("`rewrite` changes them"));
        }
        return Ok(Instance::source(Replay::paced(params, env.wait)?));
    }
    if params.number("loop") != Some(1) {
        return Err(ParamError::new("loop", "frames made without a file cannot begin again")
            .with_help("it goes on until it is stopped; file=x.pcap can be given several times"));
    }
    let mut random = Random(params.number("seed").unwrap_or_default());
    let template = Template::of_params(params, &mut random)?;
    let frames = (IMAGE_BYTES / template.stride()).clamp(1, PULL_BLOCKS);
    Ok(Instance::source(Generate {
        pacer: Pacer::of_params(params, env.wait)?,
        limits: Limits::of_params(params),
        clock: clock::Offset::now(),
        template,
        random,
        frames,
        sizes: Vec::new(),
        memory: None,
    }))
}

struct Generate {
    template: Template,
    random: Random,
    pacer: Option<Pacer>,
    limits: Limits,
    clock: clock::Offset,
    /// Most frames of one pull.
    frames: usize,
    /// Sizes of the frames of this pull.
    sizes: Vec<u32>,
    memory: Option<Memory>,
}

/// The memory of the frames.
struct Memory {
    segment: SegmentId,
    view: ViewId,
    /// A frame of the last pull. The hold keeps every filter from writing into the frames in place.
    held: Option<Descriptor>,
}

impl Generate {
    /// Chooses the sizes of the frames that are due.
    fn choose(&mut self) {
        let most = (self.frames as u64).min(self.limits.left) as usize;
        let Generate { template, random, pacer, sizes, .. } = self;
        sizes.clear();
        let Some(pacer) = pacer else {
            sizes.extend((0..most).map(|_| template.next_size(random)));
            return;
        };
        while sizes.len() < most && pacer.is_due() {
            let size = template.next_size(random);
            pacer.spend(if pacer.cost() == Cost::Bits { u64::from(size) * 8 } else { 1 });
            sizes.push(size);
        }
    }

    /// Writes frames of the chosen sizes. Returns their view, and the position of the first.
    fn write(&mut self, time: u64, cx: &mut Context<'_>) -> Result<(ViewId, u64), Box<Failure>> {
        let Generate { template, random, sizes, frames, memory, .. } = self;
        let full = || Box::new(Failure::System("there are more sources than views".into()));
        let memory = match memory {
            Some(memory) => memory,
            None => {
                let segment = cx.rings.add_append_ring();
                let name = Some(KIND.name.to_string());
                let interface = Interface { link_type: Some(LinkType::ETHERNET.0), name, ..Interface::default() };
                let view = cx.rings.add_view(segment, interface).ok_or_else(full)?;
                memory.insert(Memory { segment, view, held: None })
            }
        };
        if let Some(held) = memory.held.take() {
            cx.rings.release(&held);
        }
        let (bytes, writes) = (template.stride() * *frames, !template.is_constant());
        let first = match cx.rings.reissue(memory.segment) {
            Some((first, image)) => {
                let before = image.len() - bytes;
                if writes {
                    template.write(&mut image[before..], sizes, time, random);
                }
                first + before as u64
            }
            None => {
                // The first pull, or a later filter still holds a frame.
                cx.rings.recycle(memory.segment);
                let image = template.image(*frames);
                let written = cx.rings.append(memory.view, bytes, |space| {
                    space.copy_from_slice(&image);
                    if writes {
                        template.write(space, sizes, time, random);
                    }
                    (bytes, ())
                });
                written.ok_or_else(full)?.0.pos
            }
        };
        memory.held = cx.rings.hold(&memory.view.block(first, 1));
        Ok((memory.view, first))
    }
}

impl Source for Generate {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let now = clock::monotonic();
        let (by, is_late) = self.limits.by(now);
        match &mut self.pacer {
            Some(pacer) => pacer.at(by),
            None if is_late => return Ok(Pull::End),
            None => {}
        }
        self.choose();
        if self.sizes.is_empty() {
            let rest = self.pacer.as_ref().map(|pacer| pacer.rest(now));
            return Ok(rest.filter(|_| !is_late).unwrap_or(Pull::End));
        }
        let time = self.clock.real(now);
        let (view, first) = self.write(time, cx)?;
        let places = (first..).step_by(self.template.stride());
        cx.out.extend(self.sizes.iter().zip(places).map(|(size, pos)| Descriptor { time, ..view.block(pos, *size) }));
        self.limits.left -= self.sizes.len() as u64;
        Ok(if self.limits.left == 0 { Pull::End } else { Pull::Ready })
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        if let Some(memory) = self.memory.take() {
            memory.held.iter().for_each(|held| cx.rings.release(held));
            cx.rings.retire(memory.segment);
        }
        if let Some(note) = self.pacer.as_ref().and_then(|pacer| pacer.note(KIND.name)) {
            cx.notice(note);
        }
    }
}
