//! What filters cost, as `run --profile` measured it: a file in the user's state folder, which later runs with
//! `workers=pipeline` and `workers=auto` read.

use crate::exit::CommandError;
use crate::table::Table;
use engine::Cost;
use engine::profile::{Costs, Measured};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The file keeps at most this number of filters. A run that would add more empties it first.
const FILTERS: usize = 1000;

const BYTES: u64 = 4 << 20;

/// The file's path: `$XDG_STATE_HOME/streamline/profile.json`, else in `~/.local/state`. `None`: there is no home folder.
fn path() -> Option<PathBuf> {
    let folder = |key: &str| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("streamline/profile.json"))
}

/// The costs in the file, by the text of each filter. Empty if the file cannot be read.
pub(crate) fn read() -> Costs {
    path().and_then(|path| read_from(&path)).unwrap_or_default()
}

fn read_from(path: &Path) -> Option<Costs> {
    path.metadata().ok().filter(|file| file.is_file() && file.len() <= BYTES)?;
    let all: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let number = |value: &Value, key: &str| value[key].as_u64().map(|number| number.min(u64::from(u32::MAX)) as u32);
    let cost =
        |value: &Value| Some(Cost { ns: number(value, "ns")?, gives: number(value, "gives")?, is_measured: true });
    Some(all["filters"].as_object()?.iter().filter_map(|(text, value)| Some((text.clone(), cost(value)?))).collect())
}

pub(crate) fn save(measured: &[Measured]) -> Result<PathBuf, CommandError> {
    let path = path().ok_or_else(|| CommandError::Failed("there is no home folder to save the profile in".into()))?;
    let mut costs = read_from(&path).unwrap_or_default();
    if costs.len() + measured.len() > FILTERS {
        costs.clear();
    }
    costs.extend(measured.iter().filter(|one| one.blocks > 0).flat_map(Measured::costs));
    let filters = costs.iter().map(|(text, cost)| (text.clone(), json!({ "ns": cost.ns, "gives": cost.gives })));
    let text = format!("{:#}\n", json!({ "filters": filters.collect::<serde_json::Map<_, _>>() }));
    let write = || {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Another run may save at the same moment: each writes a file of its own.
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, &path)
    };
    match write() {
        Ok(()) => Ok(path),
        Err(error) => {
            let name = base::terminal::name(&path);
            Err(CommandError::Failed(format!("cannot save the profile in {name}: {error}")))
        }
    }
}

pub(crate) fn text(measured: &[Measured]) -> String {
    let total: u64 = measured.iter().map(|one| one.ns).sum();
    let mut table = Table::new(&["filter", ">blocks", ">ns a block", ">ms", ">% of the time"]);
    for one in measured {
        let percent = one.ns as f64 * 100.0 / total.max(1) as f64;
        table.row([
            one.label.clone(),
            one.blocks.to_string(),
            one.ns_per_block().to_string(),
            format!("{:.1}", one.ns as f64 / 1e6),
            format!("{percent:.0}"),
        ]);
    }
    table.within(None)
}
