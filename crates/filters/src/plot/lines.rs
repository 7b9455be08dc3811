//! The lines of a picture and their points: single values, or sums per interval.

use base::limits::{PLOT_LINES, PLOT_POINTS, SECOND_NS};
use chart::{FRAME_WIDTH, Series};
use std::collections::{BTreeMap, HashMap, btree_map::Entry};

/// Lines being collected.
pub(super) struct Drawn {
    /// Length in ns of the intervals whose values are summed. `None`: each value is a point.
    every: Option<u64>,
    by_name: HashMap<String, usize>,
    lines: Vec<Line>,
    points: usize,
}

struct Line {
    name: String,
    points: Points,
    total: u128,
}

enum Points {
    /// Sum by interval number. Values may come in any order.
    Sums(BTreeMap<u64, u64>),
    /// Values in order of arrival.
    Values(Vec<(u64, u64)>),
}

/// Which limit a value would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Line,
    Point,
}

impl Drawn {
    pub(super) fn new(every: Option<u64>) -> Drawn {
        Drawn { every, by_name: HashMap::new(), lines: Vec::new(), points: 0 }
    }

    /// Adds a value to the line `name`.
    pub(super) fn add(&mut self, name: &str, x: u64, y: u64) -> Result<(), Refused> {
        let at = match self.by_name.get(name) {
            Some(at) => *at,
            None if self.lines.len() >= PLOT_LINES => return Err(Refused::Line),
            None => {
                self.by_name.insert(name.to_string(), self.lines.len());
                self.lines.push(Line { name: name.to_string(), points: Points::new(self.every), total: 0 });
                self.lines.len() - 1
            }
        };
        let Line { points, total, .. } = &mut self.lines[at];
        let is_full = self.points >= PLOT_POINTS;
        match points {
            Points::Sums(sums) => match sums.entry(self.every.map_or(x, |every| x / every)) {
                Entry::Occupied(mut sum) => *sum.get_mut() = sum.get().saturating_add(y),
                Entry::Vacant(_) if is_full => return Err(Refused::Point),
                Entry::Vacant(free) => {
                    free.insert(y);
                    self.points += 1;
                }
            },
            Points::Values(_) if is_full => return Err(Refused::Point),
            Points::Values(values) => {
                values.push((x, y));
                self.points += 1;
            }
        }
        *total += u128::from(y);
        Ok(())
    }

    /// The smallest horizontal value.
    pub(super) fn begin(&self) -> Option<u64> {
        let first = self.lines.iter().filter_map(|line| line.points.ends()).map(|(first, _)| first).min()?;
        Some(self.every.map_or(first, |every| first.saturating_mul(every)))
    }

    /// The `top` largest lines, and the number of others. Horizontally, `zero` is the left edge and `unit` is 1.
    pub(super) fn series(&mut self, top: usize, zero: u64, unit: f64) -> (Vec<Series>, usize) {
        // The sort is stable: lines of equal size stay in order of their first value.
        self.lines.sort_by_key(|line| std::cmp::Reverse(line.total));
        let ends = || self.lines.iter().filter_map(|line| line.points.ends());
        let first = ends().map(|(first, _)| first).min().unwrap_or(0);
        let last = ends().map(|(_, last)| last).max().unwrap_or(0);
        let left_out = self.lines.len().saturating_sub(top);
        let along = |x: u64| x.saturating_sub(zero) as f64 / unit;
        let series = self.lines.iter_mut().take(top).map(|line| {
            let points: Vec<(f64, f64)> = match &mut line.points {
                Points::Sums(sums) => {
                    let every = self.every.unwrap_or(1);
                    let seconds = every as f64 / SECOND_NS as f64;
                    let points = with_empty(sums, first, last).into_iter();
                    points.map(|(key, sum)| (along(key.saturating_mul(every)), sum as f64 / seconds)).collect()
                }
                Points::Values(values) => {
                    values.sort_by_key(|(x, _)| *x);
                    values.iter().map(|(x, y)| (along(*x), *y as f64)).collect()
                }
            };
            Series { name: line.name.clone(), points: thinned(points) }
        });
        (series.collect(), left_out)
    }
}

impl Points {
    fn new(every: Option<u64>) -> Points {
        if every.is_some() { Points::Sums(BTreeMap::new()) } else { Points::Values(Vec::new()) }
    }

    /// The smallest and the largest horizontal value; `None` without points.
    fn ends(&self) -> Option<(u64, u64)> {
        match self {
            Points::Sums(sums) => Some((*sums.first_key_value()?.0, *sums.last_key_value()?.0)),
            Points::Values(values) => {
                let keys = || values.iter().map(|(x, _)| *x);
                Some((keys().min()?, keys().max()?))
            }
        }
    }
}

/// The sums, with 0 for empty intervals. Of a run of empty intervals only both ends get a point.
fn with_empty(points: &BTreeMap<u64, u64>, first: u64, last: u64) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::with_capacity(points.len());
    let mut next = first;
    let empty = |from: u64, to: u64, all: &mut Vec<(u64, u64)>| {
        if from <= to {
            all.push((from, 0));
        }
        if from < to {
            all.push((to, 0));
        }
    };
    for (key, sum) in points {
        if *key > next {
            empty(next, key - 1, &mut all);
        }
        all.push((*key, *sum));
        next = key.saturating_add(1);
    }
    empty(next, last, &mut all);
    all
}

/// Thins out points that cannot be told apart: keeps the smallest and the largest of those at one place.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return points };
    if points.len() <= 4 * FRAME_WIDTH || last.0 <= first.0 {
        return points;
    }
    let place = |x: f64| ((x - first.0) / (last.0 - first.0) * FRAME_WIDTH as f64) as usize;
    let mut thin = Vec::with_capacity(4 * FRAME_WIDTH);
    for same in points.chunk_by(|one, other| place(one.0) == place(other.0)) {
        let by_y = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let (low, high) = (same.iter().min_by(by_y), same.iter().max_by(by_y));
        let mut ends: Vec<_> = low.into_iter().chain(high).copied().collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        thin.extend(ends);
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_and_empty_ones_are_zero() {
        let mut drawn = Drawn::new(Some(SECOND_NS));
        for (name, ms, value) in [("a", 1000, 3), ("b", 5100, 1), ("a", 7000, 4), ("a", 1999, 2), ("a", 7001, 0)] {
            drawn.add(name, ms * 1_000_000, value).unwrap();
        }
        assert_eq!(drawn.begin(), Some(SECOND_NS));
        let (series, left_out) = drawn.series(1, SECOND_NS, SECOND_NS as f64);
        assert_eq!(left_out, 1);
        assert_eq!(series[0].name, "a");
        assert_eq!(series[0].points, [(0.0, 5.0), (1.0, 0.0), (5.0, 0.0), (6.0, 4.0)]);
        let (series, _) = drawn.series(2, SECOND_NS, SECOND_NS as f64);
        assert_eq!(series[1].points, [(0.0, 0.0), (3.0, 0.0), (4.0, 1.0), (5.0, 0.0), (6.0, 0.0)]);
    }

    #[test]
    fn intervals_that_come_backwards_take_no_quadratic_time() {
        let mut drawn = Drawn::new(Some(1));
        let start = std::time::Instant::now();
        for key in (0..PLOT_POINTS as u64).rev() {
            drawn.add("", key, 1).unwrap();
        }
        // Shifting all points on each insert would take minutes.
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
        assert_eq!(drawn.add("", PLOT_POINTS as u64, 1), Err(Refused::Point));
        assert_eq!((drawn.begin(), drawn.add("", 3, 1)), (Some(0), Ok(())));
    }

    #[test]
    fn rates_are_of_a_second() {
        let mut drawn = Drawn::new(Some(SECOND_NS / 4));
        drawn.add("", 0, 3).unwrap();
        assert_eq!(drawn.series(1, 0, 1.0).0[0].points, [(0.0, 12.0)]);
    }

    #[test]
    fn of_many_points_those_stay_that_show() {
        let points: Vec<(f64, f64)> = (0..100_000).map(|x| (f64::from(x), f64::from(x % 1000))).collect();
        let thin = thinned(points.clone());
        assert!(thin.len() <= 2 * (FRAME_WIDTH + 1), "{}", thin.len());
        assert!(thin.is_sorted_by(|one, other| one.0 <= other.0));
        assert!(thin.iter().any(|point| point.1 == 0.0) && thin.iter().any(|point| point.1 == 999.0));
        assert_eq!(thinned(points[..100].to_vec()), points[..100]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut drawn = Drawn::new(None);
        for number in 0..PLOT_LINES {
            drawn.add(&number.to_string(), 0, 1).unwrap();
        }
        assert_eq!(drawn.add("one more", 0, 1), Err(Refused::Line));
        for number in PLOT_LINES..PLOT_POINTS {
            drawn.add("7", number as u64, 1).unwrap();
        }
        assert_eq!(drawn.add("7", 0, 1), Err(Refused::Point));
    }
}
