//! The counters in a form to print, and the check that they add up.

use filter::{Counters, Types};
use std::collections::BTreeSet;

/// Counters of one node.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// Its label, for people.
    pub label: String,
    /// The space where it ran.
    pub space: String,
    /// It is an operand of a boolean selection: its blocks go back to the choice, not along edges.
    pub operand: bool,
    /// It began blocks.
    pub source: bool,
    /// The block types on its input.
    pub input: Types,
    /// The file or folder that it writes to, as the request names it.
    pub writes_to: Option<String>,
    /// Its counters.
    pub counters: Counters,
    /// The counters of its edges.
    pub edges: Vec<EdgeReport>,
}

/// Counters of one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeReport {
    /// Index of the node it leads to.
    pub to: usize,
    /// Blocks that went along.
    pub blocks: u64,
    /// Blocks whose class the edge does not take.
    pub refused: u64,
    /// Blocks that its filter had given, or rejected, before the edge existed.
    pub before: u64,
    /// It carries the blocks that its filter rejects.
    pub rejected: bool,
}

/// The work of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReport {
    /// Indices of its nodes.
    pub nodes: Vec<usize>,
    /// For each thread: blocks that it has read, or got from other stages.
    pub blocks: Vec<u64>,
}

/// Counters of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The nodes, in the plan's order.
    pub nodes: Vec<NodeReport>,
    /// The counters of the rings.
    pub traffic: buffer::block_table::Traffic,
    /// Link types of the frames that came.
    pub link_types: BTreeSet<u16>,
    /// The stages, in the order of their threads; empty if there is only one.
    pub stages: Vec<StageReport>,
}

impl Report {
    /// Checks conservation: every block that went into a filter or along an edge has an end. The error names the place
    /// where the counters differ. Only a source itself knows its input.
    pub fn check(&self) -> Result<(), String> {
        let mut arrived = vec![0; self.nodes.len()];
        for node in &self.nodes {
            for edge in &node.edges {
                arrived[edge.to] += edge.blocks;
                let (gave, blocks) = match edge.rejected {
                    false => ("gave", node.counters.blocks_out()),
                    true => ("rejected", node.counters.blocks_rejected),
                };
                if edge.before + edge.blocks + edge.refused != blocks {
                    return Err(format!("`{}` {gave} {blocks} blocks, its edge had {edge:?}", node.label));
                }
            }
        }
        for (node, arrived) in self.nodes.iter().zip(arrived) {
            if !node.counters.adds_up() {
                return Err(format!("`{}` does not add up: {:?}", node.label, node.counters));
            }
            if !node.operand && !node.source && node.counters.blocks_in != arrived {
                return Err(format!("`{}` had {} blocks, {arrived} were sent", node.label, node.counters.blocks_in));
            }
        }
        Ok(())
    }
}
