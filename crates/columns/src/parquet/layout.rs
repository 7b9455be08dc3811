//! The folders that files go to.

use filter::{ParamError, Params, Schema};
use filters::parts::held_folder::HeldFolder;
use packet::time::rfc3339;
use std::io;
use std::sync::Arc;

const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;

/// One level of folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Day,
    Hour,
    Kind,
}

const LEVELS: [(&str, Level); 3] = [("day", Level::Day), ("hour", Level::Hour), ("kind", Level::Kind)];

/// The levels of folders, outermost first.
#[derive(Debug)]
pub(super) struct Layout(Vec<Level>);

/// Rows of one place share a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// When its day or hour began; 0 without either.
    time: u64,
    /// The schema, if kinds have folders.
    schema: Option<u32>,
}

impl Layout {
    pub(super) fn new(params: &Params) -> Result<Layout, ParamError> {
        let mut levels = Vec::new();
        let words =
            params.text("by").into_iter().flat_map(|text| text.split([',', ' '])).filter(|word| !word.is_empty());
        for word in words {
            let level = LEVELS.iter().find(|(name, _)| *name == word).map(|(_, level)| *level).ok_or_else(|| {
                ParamError::new("by", format!("files are not divided by `{word}`"))
                    .with_help("day, hour and kind are possible: by=\"day,kind\"")
            })?;
            if levels.contains(&level) {
                return Err(ParamError::new("by", format!("`{word}` is there twice")));
            }
            levels.push(level);
        }
        Ok(Layout(levels))
    }

    pub(super) fn has_kind(&self) -> bool {
        self.0.contains(&Level::Kind)
    }

    /// The place of a row of this schema and time, ns since 1970 UTC.
    pub(super) fn place(&self, schema: &Schema, time: u64) -> Place {
        let step = match () {
            () if self.0.contains(&Level::Hour) => HOUR_NS,
            () if self.0.contains(&Level::Day) => DAY_NS,
            () => u64::MAX,
        };
        Place { time: time / step * step, schema: self.has_kind().then(|| schema.id()) }
    }

    /// Opens the folder of a place; makes it if it does not exist.
    pub(super) fn folder(&self, root: &Arc<HeldFolder>, place: Place, schema: &Schema) -> io::Result<Arc<HeldFolder>> {
        let text = rfc3339(place.time);
        let text = String::from_utf8_lossy(&text);
        self.0.iter().try_fold(Arc::clone(root), |folder, level| {
            let name = match level {
                Level::Day => format!("day={}", &text[..10]),
                Level::Hour if self.0.contains(&Level::Day) => format!("hour={}", &text[11..13]),
                Level::Hour => format!("hour={}T{}", &text[..10], &text[11..13]),
                Level::Kind => format!("kind={}", schema.name),
            };
            folder.folder(name.as_ref()).map(Arc::new)
        })
    }
}
