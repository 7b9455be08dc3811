//! Counts instructions for each block and hop in one stage, and compares them with `tests/instructions.golden`. The
//! test fails at 2 % more, and reports a smaller count.
//!
//!     cargo test --profile counted -p engine --test run instructions
//!
//! The test runs its own program under valgrind, which counts every instruction. `UPDATE=1` writes the file. The source
//! copies 100 bytes into each block.

use crate::parts::{Graph, Passes};
use engine::End;
use filter::prelude::*;
use std::path::Path;
use testkit::instructions::{can_be_counted, check, of_test};

/// The variable that tells the program which run to count: blocks, filters in place, filters that give new blocks.
const RUN: &str = "STREAMLINE_COUNTED";

/// Blocks of the shorter run; the longer one has twice this number.
const BLOCKS: u64 = 64 * 1024;

/// Filters of a long path.
const HOPS: usize = 8;

/// How much a count may exceed that of the golden file.
const MORE: f64 = 0.02;

struct Blocks(u64);

impl Source for Blocks {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        for _ in 0..self.0.min(256) {
            let block = cx.rings.append_copy(cx.own, &[&[7; 100]]).unwrap();
            cx.emit(block);
            self.0 -= 1;
        }
        Ok(if self.0 == 0 { Pull::End } else { Pull::Ready })
    }
}

/// Gives each block again, as a new one.
struct Gives;

impl Filter for Gives {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        batch.iter().for_each(|(_, block)| cx.out.push(*block));
        Ok(Status::Done)
    }
}

/// The run that valgrind counts; does nothing without the variable.
#[test]
fn counted_run() {
    let Ok(text) = std::env::var(RUN) else { return };
    let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
    let [blocks, in_place, makers] = numbers[..] else { panic!("{text}") };
    let mut graph = Graph::default();
    let mut last = graph.broken_source(Blocks(blocks));
    for _ in 0..in_place {
        let next = graph.modest("passes", Passes);
        graph.edge(last, next);
        last = next;
    }
    for _ in 0..makers {
        let next = graph.maker("gives", Instance::filter(Gives));
        graph.edge(last, next);
        last = next;
    }
    let sink = graph.own_sink("sink", Passes);
    graph.edge(last, sink);
    let (end, report) = graph.run();
    assert_eq!((end, report.nodes.last().unwrap().counters.blocks_in), (Ok(End::Input), blocks));
}

/// The instructions of such a run.
fn instructions(blocks: u64, in_place: usize, makers: usize) -> u64 {
    of_test("instructions::counted_run", RUN, &format!("{blocks} {in_place} {makers}"))
}

/// The instructions for each block, without the fixed part of a run.
fn of_a_block(in_place: usize, makers: usize) -> f64 {
    let more = instructions(2 * BLOCKS, in_place, makers) - instructions(BLOCKS, in_place, makers);
    more as f64 / BLOCKS as f64
}

#[test]
fn instructions_a_block_and_hop_stay() {
    if !can_be_counted() {
        return;
    }
    let shortest = of_a_block(0, 0);
    let found = [
        ("block", shortest),
        ("hop in place", (of_a_block(HOPS, 0) - shortest) / HOPS as f64),
        ("hop with new blocks", (of_a_block(0, HOPS) - shortest) / HOPS as f64),
    ];
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.golden"), &found, MORE);
}
