//! Descriptors in memory, and filters that do almost nothing: measures the cost of the engine itself. The plan is made
//! by hand; the engine that runs it is the real one.

use crate::process::{Cost, Stopwatch};
use crate::rings::payload::sum;
use base::limits::{BATCH_BLOCKS, PULL_BLOCKS};
use buffer::{Interface, MappedFile};
use engine::{Edge, Node, NodeId, Plan, Task, Worker};
use filter::prelude::*;
use memchr::memmem::Finder;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use streamline::StopFlag;

static SOURCE: Kind = Kind::new("memory", "blocks in memory", by_hand).source(Type::Bytes);
static NOTHING: Kind = Kind::new("nothing", "does nothing", by_hand);
static LOOK: Kind = Kind::new("look", "passes blocks that contain a text", by_hand);
static TOUCH: Kind = Kind::new("touch", "reads each block", by_hand).mode(Mode::Serial);

fn by_hand(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("made by hand, with its plan"))
}

/// Blocks in a mapped file that is completely in memory.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The file.
    pub path: PathBuf,
    /// Bytes of it that are used.
    pub bytes: u64,
    /// Bytes of each block.
    pub block_bytes: u32,
    /// How often to go through the file.
    pub passes: u64,
}

impl Blocks {
    /// The first `bytes` of a file, in blocks of `block_bytes`, `passes` times.
    pub fn new(path: &Path, bytes: u64, block_bytes: u32, passes: u64) -> Blocks {
        Blocks { path: path.to_owned(), bytes, block_bytes, passes }
    }

    /// Number of blocks in all passes.
    pub fn count(&self) -> u64 {
        self.bytes / u64::from(self.block_bytes) * self.passes
    }

    /// The cost of taking them through this number of filters that do nothing.
    pub fn through_nothing(&self, filters: usize) -> Result<Cost, String> {
        let filters = (0..filters).map(|_| (&NOTHING, Instance::filter(Nothing))).collect();
        self.through(filters)
    }

    /// The cost of reading one byte of each in a filter, and the sum of those bytes.
    pub fn through_touch(&self) -> Result<(Cost, u64), String> {
        self.through_readers(1, Read::Byte)
    }

    /// Reads each block in each of `filters` filters. Gives the cost, and the sum over all filters.
    pub fn through_readers(&self, filters: usize, read: Read) -> Result<(Cost, u64), String> {
        let total = Total::default();
        let touch = |_| -> (&'static Kind, Instance) {
            let total = Arc::clone(&total);
            match read {
                Read::Byte => (&TOUCH, Instance::filter(Touch { sum: 0, total, of: first_byte })),
                Read::All => (&TOUCH, Instance::filter(Touch { sum: 0, total, of: sum })),
            }
        };
        let cost = self.through((0..filters).map(touch).collect())?;
        let total = *total.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((cost, total))
    }

    /// The same as [`through_touch`](Blocks::through_touch), in a loop by hand.
    pub fn touch_by_hand(&self) -> Result<(Cost, u64), String> {
        self.by_hand(|block| u64::from(block[0]))
    }

    /// The same as [`through_readers`](Blocks::through_readers), in a loop by hand.
    pub fn readers_by_hand(&self, filters: usize, read: Read) -> Result<(Cost, u64), String> {
        // `black_box` forces each read: the compiler must not see that the block is the same.
        let each = |of: fn(&[u8]) -> u64, block: &[u8]| {
            (0..filters).fold(0u64, |total, _| total.wrapping_add(of(std::hint::black_box(block))))
        };
        match read {
            Read::Byte => self.by_hand(|block| each(first_byte, block)),
            Read::All => self.by_hand(|block| each(sum, block)),
        }
    }

    /// The cost of searching each block for a text in a filter, as `match` does for independent blocks, and the number
    /// of blocks that have it.
    pub fn through_look(&self, text: &str) -> Result<(Cost, u64), String> {
        let total = Total::default();
        let look = Look { finder: Finder::new(text).into_owned(), found: 0, total: Arc::clone(&total) };
        let cost = self.through(vec![(&LOOK, Instance::filter(look))])?;
        let total = *total.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((cost, total))
    }

    /// The same as [`through_look`](Blocks::through_look), in a loop by hand.
    pub fn look_by_hand(&self, text: &str) -> Result<(Cost, u64), String> {
        let finder = Finder::new(text);
        self.by_hand(|block| u64::from(finder.find(block).is_some()))
    }

    /// The cost of a loop over the blocks, and the sum over them.
    fn by_hand(&self, each: impl Fn(&[u8]) -> u64) -> Result<(Cost, u64), String> {
        let file = present(&self.path)?;
        let used = file.bytes().get(..self.bytes as usize).ok_or("the file is too short")?;
        let watch = Stopwatch::start_here()?;
        let mut sum = 0;
        for _ in 0..self.passes {
            // The compiler must not merge the passes.
            let blocks = std::hint::black_box(used).chunks_exact(self.block_bytes as usize);
            sum = blocks.map(&each).fold(sum, u64::wrapping_add);
        }
        Ok((watch.stop()?, sum))
    }

    fn through(&self, filters: Vec<(&'static Kind, Instance)>) -> Result<Cost, String> {
        let begun = Arc::new(Mutex::new(None));
        let source = Memory { blocks: self.clone(), cursor: None, left: self.count(), begun: Arc::clone(&begun) };
        let mut chain = vec![(&SOURCE, Instance::source(source))];
        chain.extend(filters);
        let mut plan = Plan::default();
        let mut instances = Vec::new();
        let last = chain.len() - 1;
        for (index, (kind, instance)) in chain.into_iter().enumerate() {
            let next = Edge::plain(NodeId(index as u32 + 1));
            plan.nodes.push(Node {
                label: kind.name.to_owned(),
                task: Task::Filter { kind, params: Params::new() },
                space: "app".to_owned(),
                input: if index == 0 { Types::NONE } else { Types::of(&[Type::Bytes]) },
                how: Default::default(),
                edges: if index == last { Vec::new() } else { vec![next] },
            });
            instances.push(Some(instance));
        }
        let mut worker = Worker::new(&plan, instances);
        worker.run(&StopFlag::new(), &mut |_| {}).map_err(|failure| failure.to_string())?;
        let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cost = begun.ok_or("the source was never asked")?.stop()?;
        let report = worker.report();
        report.check()?;
        if report.nodes[last].counters.blocks_in != self.count() && last > 0 {
            return Err(format!("{} blocks of {} arrived", report.nodes[last].counters.blocks_in, self.count()));
        }
        Ok(cost)
    }
}

/// Maps a file, and brings all of it into the page table.
fn present(path: &Path) -> Result<MappedFile, String> {
    let file = crate::floors::map(path)?;
    file.populate(0, file.len());
    Ok(file)
}

struct Memory {
    blocks: Blocks,
    cursor: Option<Cursor>,
    left: u64,
    /// Started once all is prepared.
    begun: Arc<Mutex<Option<Stopwatch>>>,
}

struct Cursor {
    /// A descriptor without a position, which all blocks share.
    block: Descriptor,
    next: u64,
}

impl Source for Memory {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let Some(cursor) = &mut self.cursor else {
            let failed = |text: String| Box::new(Failure::System(text));
            let file = present(&self.blocks.path).map_err(failed)?;
            if (file.len() as u64) < self.blocks.bytes {
                return Err(failed("the file is too short".to_owned()));
            }
            let segment = cx.rings.add_file(file);
            let view = cx.rings.add_view(segment, Interface::default());
            let view = view.ok_or_else(|| failed("no ring is free".to_owned()))?;
            self.cursor = Some(Cursor { block: view.block(0, self.blocks.block_bytes), next: 0 });
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stopwatch::start_here().map_err(failed)?);
            return Ok(Pull::Ready);
        };
        let block_bytes = u64::from(self.blocks.block_bytes);
        let end = self.blocks.bytes - self.blocks.bytes % block_bytes;
        let count = self.left.min(PULL_BLOCKS as u64).min((end - cursor.next) / block_bytes);
        let Cursor { block, next } = &*cursor;
        let block = |index| Descriptor { pos: next + index * block_bytes, ..*block };
        // The first blocks' bytes are prefetched while the other blocks are described.
        let first = count.min(BATCH_BLOCKS as u64);
        cx.out.extend((0..first).map(block));
        cx.rings.prefetch(cx.out);
        cx.out.extend((first..count).map(block));
        cursor.next += count * block_bytes;
        if cursor.next == end {
            cursor.next = 0;
        }
        self.left -= count;
        Ok(if self.left == 0 { Pull::End } else { Pull::Ready })
    }
}

struct Nothing;

impl Filter for Nothing {
    fn run(&mut self, _batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// The sum that a filter reports when it is finished.
type Total = Arc<Mutex<u64>>;

struct Look {
    finder: Finder<'static>,
    found: u64,
    total: Total,
}

impl Filter for Look {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        batch.keep_if_read(rings, |_, bytes| self.finder.find(bytes).is_some());
        self.found += u64::from(batch.count());
        Ok(Status::Done)
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        *self.total.lock().unwrap_or_else(PoisonError::into_inner) = self.found;
        Ok(Status::Done)
    }
}

/// The part of a block that a filter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Its first byte.
    Byte,
    /// All of it.
    All,
}

#[inline]
fn first_byte(block: &[u8]) -> u64 {
    block.first().map_or(0, |byte| u64::from(*byte))
}

struct Touch<F> {
    sum: u64,
    total: Total,
    of: F,
}

impl<F: Fn(&[u8]) -> u64 + Send> Filter for Touch<F> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        let mut sum = 0;
        batch.read(rings, |_, _, bytes| sum = (self.of)(bytes).wrapping_add(sum));
        self.sum = self.sum.wrapping_add(sum);
        Ok(Status::Done)
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        *total = total.wrapping_add(self.sum);
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captures::Store;

    #[test]
    fn every_block_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = Store::new(folder.path()).unwrap().noise(100_000).unwrap();
        for (bytes, block_bytes, passes) in [(100_000, 1024, 3), (65_536, 1024, 1), (1024, 1024, 100)] {
            let blocks = Blocks::new(&path, bytes, block_bytes, passes);
            blocks.through_nothing(0).unwrap();
            blocks.through_nothing(8).unwrap();
            assert_eq!(blocks.through_touch().unwrap().1, blocks.touch_by_hand().unwrap().1);
            for read in [Read::Byte, Read::All] {
                let found = blocks.through_readers(3, read).unwrap().1;
                assert_eq!(found, blocks.readers_by_hand(3, read).unwrap().1);
                assert_eq!(found, blocks.readers_by_hand(1, read).unwrap().1.wrapping_mul(3));
            }
            let found = blocks.through_look("a").unwrap().1;
            assert!(found > 0 && found <= blocks.count(), "{found}");
            assert_eq!(blocks.look_by_hand("a").unwrap().1, found);
        }
        assert!(Blocks::new(&path, 200_000, 1024, 1).through_nothing(1).is_err(), "too short");
    }
}
