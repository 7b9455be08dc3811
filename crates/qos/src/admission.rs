//! Admission: how much of the wire guarantees have taken. Shares are whole numbers of 2^-40 of the wire, rounded down, and a
//! flow gives back exactly the share that it took. 10,000 roundings are less than a hundred-millionth of the wire.

use crate::guarantee::{Class, Guarantee, GuaranteeError, Time, WHOLE};
use std::fmt;

/// The reason why a flow is not admitted or not changed. The scheduler is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Guarantees would take more of the wire than they may. Shares are in millionths of the wire.
    Full {
        /// The guarantee that was asked for.
        asked: Guarantee,
        /// Its share.
        asked_ppm: u32,
        /// The share of the other guarantees, rounded to the nearest.
        taken_ppm: u32,
        /// The share that guarantees may take together.
        limit_ppm: u32,
        /// The longest slice of the period asked for that would be admitted now, in ns. 0: none.
        fitting_slice_ns: u64,
    },
    /// The numbers of the guarantee contradict each other.
    Guarantee(GuaranteeError),
    /// A fair flow has the weight 0.
    NoWeight,
    /// The flow is admitted already.
    Known(u32),
    /// The flow is not admitted.
    Unknown(u32),
    /// As many flows are admitted as may be.
    Flows {
        /// The largest number of flows.
        most: u32,
    },
}

/// The part of the wire that guarantees took.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    limit: u64,
    limit_ppm: u32,
    taken: u64,
}

/// The share that a class takes: 0 unless it is guaranteed.
fn share(class: &Class) -> u64 {
    match class {
        Class::Guaranteed(one) => one.share(),
        Class::Fair { .. } | Class::Background => 0,
    }
}

fn ppm(share: u64) -> u32 {
    // At most a few million: the wire has a million.
    ((u128::from(share) * 1_000_000 + u128::from(WHOLE / 2)) >> 40) as u32
}

impl Admission {
    /// Guarantees may take `limit_ppm` millionths of the wire; more than a million count as a million.
    pub(crate) fn new(limit_ppm: u32) -> Admission {
        let limit_ppm = limit_ppm.min(1_000_000);
        Admission { limit: ((u128::from(limit_ppm) << 40) / 1_000_000) as u64, limit_ppm, taken: 0 }
    }

    /// Takes the share of a class in place of that of `before`, or refuses and changes nothing.
    pub(crate) fn take(&mut self, class: &Class, before: Option<&Class>) -> Result<(), Refusal> {
        match class {
            Class::Guaranteed(guarantee) => guarantee.check().map_err(Refusal::Guarantee)?,
            Class::Fair { weight: 0 } => return Err(Refusal::NoWeight),
            Class::Fair { .. } | Class::Background => {}
        }
        let others = self.taken - before.map_or(0, share);
        let asked = share(class);
        if let Class::Guaranteed(guarantee) = class
            && others + asked > self.limit
        {
            let left = self.limit.saturating_sub(others);
            // The longest slice whose share, rounded down, is at most `left`.
            let fitting = (((u128::from(left) + 1) * u128::from(guarantee.period_ns) - 1) >> 40) as u64;
            return Err(Refusal::Full {
                asked: *guarantee,
                asked_ppm: ppm(asked),
                taken_ppm: ppm(others),
                limit_ppm: self.limit_ppm,
                fitting_slice_ns: fitting.min(guarantee.period_ns),
            });
        }
        self.taken = others + asked;
        Ok(())
    }

    /// Gives the share of a class back.
    pub(crate) fn give_back(&mut self, class: &Class) {
        self.taken -= share(class);
    }

    /// The share that is taken, in millionths.
    pub(crate) fn taken_ppm(&self) -> u32 {
        ppm(self.taken)
    }
}

/// Millionths as per cent, without zeros at the end.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000.0)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full { asked, asked_ppm, taken_ppm, limit_ppm, fitting_slice_ns } => {
                let left = limit_ppm.saturating_sub(*taken_ppm);
                let (share, taken, limit) = (Percent(*asked_ppm), Percent(*taken_ppm), Percent(*limit_ppm));
                write!(f, "{asked} is {share} of the wire; other flows have {taken} of the {limit} ")?;
                write!(f, "that guarantees may take, {} is left", Percent(left))?;
                match fitting_slice_ns {
                    0 => write!(f, ": no slice fits"),
                    ns => write!(f, ": {}/{} would fit", Time(*ns), Time(asked.period_ns)),
                }
            }
            Refusal::Guarantee(error) => error.fmt(f),
            Refusal::NoWeight => write!(f, "a fair flow has a weight of at least 1"),
            Refusal::Known(flow) => write!(f, "flow {flow} is admitted already"),
            Refusal::Unknown(flow) => write!(f, "flow {flow} is not admitted"),
            Refusal::Flows { most } => write!(f, "{most} flows are admitted, and no more may be"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Class {
        Class::Guaranteed(text.parse().unwrap())
    }

    #[test]
    fn a_refusal_says_how_much_is_left() {
        let mut admission = Admission::new(950_000);
        for _ in 0..90 {
            admission.take(&class("1ms/100ms"), None).unwrap();
        }
        let refusal = admission.take(&class("10ms/100ms"), None).unwrap_err().to_string();
        let expected = "10ms/100ms is 10 % of the wire; other flows have 90 % of the 95 % that guarantees may take, \
                        5 % is left: 5ms/100ms would fit";
        assert_eq!(refusal, expected);
        admission.take(&class("5ms/100ms"), None).unwrap();
        let refusal = admission.take(&class("1us/1s"), None).unwrap_err().to_string();
        assert!(refusal.ends_with("0 % is left: no slice fits"), "{refusal}");
    }

    #[test]
    fn shares_come_back_exactly() {
        let mut admission = Admission::new(950_000);
        for round in 1..2_000_u64 {
            let text = format!("{}ns/{}ns", round, round * 7 + 3);
            admission.take(&class(&text), None).unwrap();
            admission.take(&class("1ms/3s"), Some(&class(&text))).unwrap();
            admission.give_back(&class("1ms/3s"));
            assert_eq!(admission.taken, 0);
        }
    }
}
