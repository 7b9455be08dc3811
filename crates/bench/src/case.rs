//! A case: two things to compare, and the goal. Data, and one function that sets both sides up.

use crate::measure::{self, Clock, Figure, Side, estimate};
use crate::process::{Memory, Program};
use crate::setting::Setting;
use crate::table::{Found, Goal, Row, Touched};
use std::path::Path;

/// One comparison.
pub struct Case {
    /// The work, in words.
    pub about: &'static str,
    /// The peer, in words.
    pub against: &'static str,
    /// The goal.
    pub goal: Goal,
    /// The part of the payload that the work touches.
    pub touched: Touched,
    /// The way of measuring.
    pub how: How,
}

/// A way of measuring.
pub enum How {
    /// By time.
    Time(Clock, Figure, fn(&Setting) -> Result<Sides<'_>, CaseError>),
    /// By the highest memory of two programs; each writes into the folder that it is given.
    Memory(fn(&Setting) -> Result<[IntoFolder<'_>; 2], CaseError>),
    /// By numbers of another kind.
    Numbers(fn(&Setting) -> Result<Numbers, CaseError>),
    /// By such numbers, with a goal for ours alone; the peer's are shown beside.
    Beside(fn(&Setting) -> Result<Numbers, CaseError>),
}

/// Numbers, each measured several times.
pub struct Numbers {
    /// Our numbers.
    pub ours: Vec<f64>,
    /// The peer's numbers, one for each of ours and measured right after it. `None`: the goal is for ours alone.
    pub peer: Option<Vec<f64>>,
    /// Their unit: `ms`, `%`.
    pub unit: &'static str,
    /// Why they say nothing about the goal. `None`: they do.
    pub void: Option<&'static str>,
}

/// Two things to compare by time.
pub struct Sides<'a> {
    /// Ours.
    pub ours: Side<'a>,
    /// The peer.
    pub peer: Side<'a>,
}

/// A program that writes into the folder it is given.
pub type IntoFolder<'a> = Box<dyn Fn(&Path) -> Program + 'a>;

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseError {
    /// This machine lacks something: a peer, rights, processors. Says how to get it.
    Missing(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for CaseError {
    fn from(why: String) -> CaseError {
        CaseError::Failed(why)
    }
}

const MEMORY_RUNS: usize = 5;

impl Case {
    /// Whether this case is to be measured when only cases with this text are. Cases that show how steady the machine is always
    /// are.
    pub fn is_about(&self, text: &str) -> bool {
        matches!(self.goal, Goal::Within(..)) || self.about.contains(text) || self.against.contains(text)
    }

    /// Measures it.
    pub fn run(&self, setting: &Setting) -> Row {
        let found = match &self.how {
            How::Time(clock, figure, sides) => sides(setting).and_then(|Sides { mut ours, mut peer }| {
                let outcome = measure::compare(&mut ours, &mut peer, *clock, *figure, setting.effort)?;
                Ok(Found::Times(outcome, *figure))
            }),
            How::Numbers(numbers) => numbers(setting).map(|numbers| numbers.found(true)),
            How::Beside(numbers) => numbers(setting).map(|numbers| numbers.found(false)),
            How::Memory(programs) => programs(setting).and_then(|programs| compare_memory(setting, &programs)),
        };
        let found = found.unwrap_or_else(|error| match error {
            CaseError::Missing(how) => Found::Missing(how),
            CaseError::Failed(why) => Found::Failed(why),
        });
        let Case { about, against, goal, touched, .. } = self;
        Row { case: (*about).to_owned(), against: (*against).to_owned(), goal: *goal, touched: *touched, found }
    }
}

impl Numbers {
    fn found(self, compared: bool) -> Found {
        let Numbers { ours, peer, unit, void } = self;
        let is_ratio = compared && peer.is_some();
        let figure = match &peer {
            Some(peer) if is_ratio => {
                estimate(&ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect::<Vec<_>>())
            }
            _ => estimate(&ours),
        };
        Found::Numbers {
            figure,
            is_ratio,
            ours: measure::median(&ours),
            peer: peer.map(|peer| measure::median(&peer)),
            unit,
            void,
        }
    }
}

fn compare_memory(setting: &Setting, programs: &[IntoFolder<'_>; 2]) -> Result<Found, CaseError> {
    let mut peaks: [Vec<Memory>; 2] = Default::default();
    for _ in 0..MEMORY_RUNS {
        for (program, peaks) in programs.iter().zip(&mut peaks) {
            let folder = setting.output()?;
            peaks.push(program(&folder.path().join("out")).peak_memory()?);
        }
    }
    let [ours, peer] = &peaks;
    let shares: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| ours.own as f64 / peer.own as f64).collect();
    let middle = |peaks: &[Memory], of: fn(&Memory) -> u64| {
        let numbers: Vec<f64> = peaks.iter().map(|peak| of(peak) as f64).collect();
        measure::median(&numbers) as u64
    };
    Ok(Found::Memory {
        share: estimate(&shares),
        own: [middle(ours, |peak| peak.own), middle(peer, |peak| peak.own)],
        mapped_files: [middle(ours, |peak| peak.mapped_files), middle(peer, |peak| peak.mapped_files)],
    })
}
