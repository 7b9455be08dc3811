//! What all selectors share: the loop over a batch, with a test for each block. A selector's file holds the test alone.
//!
//! Frames are read where they lie. Of streams (`bytes`, `message`) nothing is read: the facts of the stream a block
//! belongs to stand in the stream table, and its class stays what it is, for sessions below live by it.
//!
//! Tiers: a batch is of frames or of streams (decided when the instance is made); of frames, the link type is looked up
//! when the view changes, which it hardly ever does within a batch; then comes one call of the test for each block.

use buffer::Rings;
use filter::Counters;
use filter::prelude::*;
use packet::flow::Flow;
use packet::frame::{self, Frame};
use packet::link::LinkType;
use packet::malformed::Malformed;

/// A frame to test.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// What its first byte is.
    pub link: LinkType,
    /// What was captured.
    pub bytes: &'a [u8],
    /// Bytes on the wire.
    pub wire_len: u32,
}

impl View<'_> {
    /// Where the headers are up to the transport header.
    #[inline]
    pub fn parse(&self) -> Result<Frame, Malformed> {
        frame::parse(self.link, self.bytes, self.wire_len)
    }
}

/// What a selector asks of a frame.
pub(crate) trait FrameTest: Send {
    /// Does the frame pass? May set the class. What cannot be read does not pass, and is counted.
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed>;
}

/// What a selector asks of a frame or of a stream.
pub(crate) trait StreamTest: FrameTest {
    /// Do the blocks of a stream pass, whose packets have these addresses and ports?
    fn stream(&self, flow: &Flow) -> bool;
}

/// A selector of frames and packets.
pub(crate) fn of_frames(test: impl FrameTest + 'static) -> Instance {
    Instance::filter(Frames { test })
}

/// A selector of frames and packets or of streams, whichever the input is.
pub(crate) fn of_frames_or_streams(test: impl StreamTest + 'static, env: &Env) -> Result<Instance, ParamError> {
    Ok(if are_streams(env)? { Instance::filter(Streams { test }) } else { of_frames(test) })
}

/// Are the blocks that will come pieces of streams? An error where some are and some are frames: nothing in a block says
/// which it is, for a piece of a stream lies in the frame it came in.
pub(crate) fn are_streams(env: &Env) -> Result<bool, ParamError> {
    let streams = env.input.has(Type::Bytes) || env.input.has(Type::Message);
    let frames = env.input.has(Type::Frame) || env.input.has(Type::Packet);
    if streams && frames {
        let message = format!("it gets {} on one input", env.input);
        return Err(ParamError { key: None, message, help: None, system: false }
            .with_help("use one filter for each branch: frames and streams are looked at in different ways"));
    }
    Ok(streams)
}

struct Frames<T> {
    test: T,
}

impl<T: FrameTest> Filter for Frames<T> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (rings, counters) = (&*cx.rings, &mut *cx.counters);
        let mut links = Links::default();
        batch.keep_if(|block| {
            let Some(link) = links.of(rings, block) else {
                return refused(counters, Malformed::UnsupportedLink);
            };
            let view = View { link, bytes: rings.bytes(block), wire_len: block.wire() };
            match self.test.frame(view, &mut block.class) {
                Ok(passes) => passes,
                Err(why) => refused(counters, why),
            }
        });
        Ok(Status::Done)
    }
}

struct Streams<T> {
    test: T,
}

impl<T: StreamTest> Filter for Streams<T> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (streams, counters) = (&*cx.streams, &mut *cx.counters);
        batch.keep_if(|block| match streams.get(block.class) {
            Some(facts) => self.test.stream(&facts.directed(block.class)),
            None => {
                counters.events.add("no facts of the stream", 1);
                false
            }
        });
        Ok(Status::Done)
    }
}

/// Counts why a frame could not be looked at, unless it is in order and merely of another sort.
#[cold]
fn refused(counters: &mut Counters, why: Malformed) -> bool {
    if !matches!(why, Malformed::NotIp | Malformed::OtherProtocol | Malformed::LaterFragment) {
        counters.events.add(why.reason(), 1);
    }
    false
}

/// Link types by view, of which the last is remembered.
#[derive(Default)]
pub(crate) struct Links {
    last: Option<(ViewKey, LinkType)>,
}

type ViewKey = (base::id::RingId, base::id::Generation);

impl Links {
    /// The link type of this block's view, where it holds frames.
    #[inline]
    pub fn of(&mut self, rings: &Rings, block: &Descriptor) -> Option<LinkType> {
        let key = (block.ring, block.generation);
        match self.last {
            Some((known, link)) if known == key => Some(link),
            _ => {
                let link = LinkType(rings.link_type(block)?);
                self.last = Some((key, link));
                Some(link)
            }
        }
    }
}
