//! The ending of an output file's name. A name that promises another format than the filter writes is refused: the
//! program that is given the file later would fail far from the mistake.

use base::terminal;
use filter::{ParamError, Params};
use std::path::Path;

/// What writes a format, for the hint.
enum Maker {
    Save,
    Json,
    Fields(&'static str),
    Plot,
    Columns,
    /// A program that reads standard output.
    Compressor,
    Nothing,
}

/// The endings of JSON lines.
pub const JSON: &[&str] = &["jsonl", "json", "ndjson"];

/// Endings that name one format. An ending that is not here (`.log`, `.txt`, `.1`) fits every format.
const FORMATS: &[(&[&str], &str, Maker)] = &[
    (&["pcap", "pcapng", "cap", "snoop", "erf"], "a capture", Maker::Save),
    (&["json", "jsonl", "ndjson"], "JSON", Maker::Json),
    (&["csv"], "CSV", Maker::Fields("csv")),
    (&["tsv", "tab"], "TSV", Maker::Fields("tsv")),
    (&["svg"], "SVG", Maker::Plot),
    (&["gz", "zst", "xz", "bz2", "lz4", "zip", "7z", "tgz"], "a compressed file", Maker::Compressor),
    (&["parquet", "arrow", "arrows", "ipc"], "a table of columns", Maker::Columns),
    (&["feather", "orc", "avro"], "another table of columns", Maker::Nothing),
    (&["db", "sqlite", "sqlite3", "duckdb", "mdb"], "a database", Maker::Nothing),
    (&["yaml", "yml", "toml", "xml", "pdml", "html", "htm"], "another language", Maker::Nothing),
    (&["msgpack", "cbor", "bson", "proto", "pb"], "a binary format", Maker::Nothing),
    (&["xls", "xlsx", "ods"], "a spreadsheet", Maker::Nothing),
    (&["png", "jpg", "jpeg", "gif", "webp", "pdf", "eps"], "a picture", Maker::Nothing),
    (&["tar"], "an archive", Maker::Nothing),
];

/// The lower-case ending of a file's name; empty if there is none.
pub fn of(name: &str) -> String {
    Path::new(name).extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// Refuses a file, named by the parameter `key`, whose ending names a format that is not among the endings `writes`.
pub fn check(params: &Params, key: &'static str, writes: &[&str]) -> Result<(), ParamError> {
    let Some(name) = params.text(key) else { return Ok(()) };
    let ending = of(name);
    let Some((_, format, maker)) = FORMATS.iter().find(|(endings, ..)| endings.contains(&&ending[..])) else {
        return Ok(());
    };
    if writes.contains(&&ending[..]) {
        return Ok(());
    }
    let shown = terminal::name(name);
    let other = match writes.first() {
        Some(own) => format!("name the file {}", terminal::name(Path::new(name).with_extension(own))),
        None => "give it another ending, or none".to_string(),
    };
    let help = match maker {
        Maker::Save => format!("{other}; `save` writes captures"),
        Maker::Json => format!("{other}; `json` writes JSON"),
        Maker::Fields(format) => format!("{other}; `fields NAME ... format={format}` writes {}", format.to_uppercase()),
        Maker::Plot => format!("{other}; `plot` draws SVG"),
        Maker::Columns => format!("{other}; `parquet DIR` and `arrow FILE` write tables of columns"),
        Maker::Compressor => "standard output can be piped into a program that compresses".to_string(),
        Maker::Nothing => other,
    };
    Err(ParamError::new(key, format!("{shown} is the name of {format}, and the filter writes none")).with_help(help))
}

/// Refuses a new folder with the name of a file in a format of `FORMATS`: the caller expects one file.
pub fn check_folder(params: &Params, key: &'static str) -> Result<(), ParamError> {
    let name = params.text(key).unwrap_or_default();
    if Path::new(name).is_dir() {
        return Ok(());
    }
    check(params, key, &[]).map_err(|error| {
        let shown = terminal::name(name);
        ParamError { message: format!("{shown} is the name of a file, and a folder is made here"), ..error }
            .with_help(format!("{} is the name of a folder", terminal::name(Path::new(name).with_extension(""))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files, json};

    #[track_caller]
    fn check_name(name: &str, writes: &[&str], expected: Result<(), &str>) {
        let params = testkit::chain::params(&json::KIND, &[("file", name)]);
        let help = check(&params, "file", writes).map_err(|error| error.help.unwrap_or_default());
        assert_eq!(help, expected.map_err(str::to_string), "{name}");
    }

    #[test]
    fn the_name_of_another_format_is_refused() {
        let json = &["jsonl", "json", "ndjson"];
        for name in ["x.json", "x.JSONL", "x", "x.log", "x.txt", "x.2026-11-28", "dir.parquet/x", "/dev/fd/3", ".csv"] {
            check_name(name, json, Ok(()));
        }
        check_name(
            "out/x.parquet",
            json,
            Err("name the file out/x.jsonl; `parquet DIR` and `arrow FILE` write tables of columns"),
        );
        check_name("x.Orc", &[], Err("give it another ending, or none"));
        check_name("x.csv", json, Err("name the file x.jsonl; `fields NAME ... format=csv` writes CSV"));
        check_name("x.pcap", json, Err("name the file x.jsonl; `save` writes captures"));
        check_name("x.json", &["svg"], Err("name the file x.svg; `json` writes JSON"));
        check_name("x.json.gz", json, Err("standard output can be piped into a program that compresses"));
    }

    #[test]
    fn a_folder_is_no_file_of_a_format() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("x.csv");
        std::fs::create_dir(&there).unwrap();
        let check = |name: &str| check_folder(&testkit::chain::params(&files::KIND, &[("dir", name)]), "dir");
        assert!(check(there.to_str().unwrap()).is_ok());
        assert!(check("logs").is_ok());
        let error = check("x.parquet").unwrap_err();
        assert_eq!(error.message, "x.parquet is the name of a file, and a folder is made here");
        assert_eq!(error.help.as_deref(), Some("x is the name of a folder"));
    }
}
