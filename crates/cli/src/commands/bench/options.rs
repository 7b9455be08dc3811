//! The options that benches share: sizes, times, shares, rates.

use super::search::Range;
use crate::exit::{CommandError, Outcome};
use filter::ParamType;
use filter::param::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of an Ethernet check sequence: RFC 2544 counts them, `generate` does not.
pub(super) const CHECK_BYTES: u64 = 4;

/// Sizes of frames that a device takes with its usual MTU, with their check sequence. The frame's number fits into the smallest.
const SIZES: std::ops::RangeInclusive<u32> = 64..=1518;

/// Mean of the sizes of the mix, with check sequences: `generate size=imix`.
const MIX_BYTES: f64 = (7.0 * 64.0 + 4.0 * 594.0 + 1518.0) / 12.0;

/// A shorter trial would mostly measure its own start and end.
const TRIALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(600);

/// Lower rates, in frames a second, cannot be told apart from nothing.
const LEAST_RATE: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Bytes of each frame, with the check sequence.
    Bytes(u32),
    /// The mix of RFC 6985.
    Mix,
}

impl Size {
    /// Bytes of a frame, or of one of the mix on average.
    pub(super) fn bytes(self) -> f64 {
        match self {
            Size::Bytes(bytes) => bytes.into(),
            Size::Mix => MIX_BYTES,
        }
    }

    /// The value of the parameter `size` of `generate`.
    pub(super) fn param(self) -> String {
        match self {
            Size::Bytes(bytes) => (u64::from(bytes) - CHECK_BYTES).to_string(),
            Size::Mix => "imix".into(),
        }
    }

    pub(super) fn json(self) -> serde_json::Value {
        match self {
            Size::Bytes(bytes) => bytes.into(),
            Size::Mix => "mix".into(),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => write!(f, "{bytes}"),
            Size::Mix => f.write_str("mix"),
        }
    }
}

/// The options of every bench.
#[derive(clap::Args)]
pub(super) struct Common {
    /// Bytes of the frames, with the four of the check sequence (64 to 1518); mix is the mix of RFC 6985
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = size,
        default_value = "64,128,256,512,1024,1280,1518,mix"
    )]
    pub(super) sizes: Vec<Size>,

    /// How long a trial sends
    #[arg(long, value_name = "TIME", value_parser = trial, default_value = "1s")]
    pub(super) trial: Duration,

    /// One JSON document
    #[arg(long)]
    pub(super) json: bool,

    /// Draw the rows into this file, too
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// The options of benches that search.
#[derive(clap::Args)]
pub(super) struct Searched {
    /// The share of frames that a trial may lose and still pass
    #[arg(long, value_name = "PERCENT", value_parser = loss, default_value = "0")]
    pub(super) loss: f64,

    /// End the search where a value that passed is this near to one that failed
    #[arg(long, value_name = "PERCENT", value_parser = resolution, default_value = "1%")]
    pub(super) resolution: f64,
}

impl Searched {
    pub(super) fn rates(&self, highest: u64) -> Range {
        Range { highest, resolution: self.resolution, least: LEAST_RATE }
    }
}

impl Common {
    /// Fails before anything is measured where the chart could not be written afterwards.
    pub(super) fn check_svg(&self) -> Outcome {
        let Some(path) = &self.svg else { return Ok(()) };
        let was_there = path.exists();
        std::fs::OpenOptions::new().append(true).create(true).open(path).map_err(|error| cannot_write(path, &error))?;
        // A bench that fails leaves no file behind.
        if was_there { Ok(()) } else { std::fs::remove_file(path).map_err(|error| cannot_write(path, &error)) }
    }
}

pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("cannot write {}: {error}", base::terminal::name(path)))
}

fn size(text: &str) -> Result<Size, String> {
    match text.trim() {
        "mix" => Ok(Size::Mix),
        number => match number.parse() {
            Ok(bytes) if SIZES.contains(&bytes) => Ok(Size::Bytes(bytes)),
            _ => Err(format!("expected `mix` or a number from {} to {}", SIZES.start(), SIZES.end())),
        },
    }
}

fn number(kind: ParamType, text: &str) -> Result<u64, String> {
    match kind.parse(text)? {
        Value::Number(number) => Ok(number),
        _ => Err("expected a number".into()),
    }
}

/// A time, as in requests: `100ms`, `1s`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    number(ParamType::Duration, text).map(Duration::from_nanos)
}

fn trial(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    match TRIALS.contains(&time) {
        true => Ok(time),
        false => Err(format!("a trial lasts {:?} to {:?}", TRIALS.start(), TRIALS.end())),
    }
}

/// Frames or bits a second, as in requests: `100k`, `1G`.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    match number(ParamType::Number, text)? {
        0 => Err("a rate of 0 sends nothing".into()),
        rate => Ok(rate),
    }
}

/// A share, given in percent, with the sign or without.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    number
        .ok()
        .filter(|number| number.is_finite())
        .map(|number| number / 100.0)
        .ok_or("expected a number of percent".into())
}

fn loss(text: &str) -> Result<f64, String> {
    percent(text).and_then(|share| match (0.0..=0.5).contains(&share) {
        true => Ok(share),
        false => Err("from 0 to 50%".into()),
    })
}

fn resolution(text: &str) -> Result<f64, String> {
    percent(text).and_then(|share| match (0.0001..=0.5).contains(&share) {
        true => Ok(share),
        false => Err("from 0.01% to 50%".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "0", "63", "1519", "-64", "64.5", "imix", "99999999999999999999"] {
            assert!(size(text).is_err(), "{text:?}");
        }
        for text in ["", "0", "1ms", "1h", "nan", "1"] {
            assert!(trial(text).is_err(), "{text:?}");
        }
        for text in ["", "%", "-1", "51", "nan", "inf", "1%%x"] {
            assert!(loss(text).is_err(), "{text:?}");
            assert!(resolution(text).is_err(), "{text:?}");
        }
        assert!(resolution("0").is_err());
        for text in ["0", "", "-1", "fast"] {
            assert!(rate(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_makes_sense_is_taken() {
        assert_eq!(
            (size("64"), size("1518"), size("mix")),
            (Ok(Size::Bytes(64)), Ok(Size::Bytes(1518)), Ok(Size::Mix))
        );
        assert_eq!(Size::Bytes(64).param(), "60");
        assert_eq!((loss("0"), loss("1"), resolution("0.5 %")), (Ok(0.0), Ok(0.01), Ok(0.005)));
        assert_eq!((trial("100ms"), rate("10k")), (Ok(Duration::from_millis(100)), Ok(10_000)));
    }
}
