//! Each example in a filter's manual is a test. It runs the request in a folder with the bundled captures, and expects
//! exactly the output in the manual. A program of its own, since the folder is the whole process's.

use std::path::Path;
use std::sync::Mutex;
use streamline::{Output, Session, StopFlag, registry};
use testkit::chain::Captured;

/// One test at a time changes the process's current folder.
static FOLDER: Mutex<()> = Mutex::new(());

fn folder_with_captures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    for entry in std::fs::read_dir(captures).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn examples_print_what_the_manual_says() {
    let _guard = FOLDER.lock().unwrap();
    let folder = folder_with_captures();
    std::env::set_current_dir(folder.path()).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for kind in registry().kinds() {
        for example in kind.examples {
            count += 1;
            let captured = Captured::default();
            let session = Session::with_output(Output::new(Box::new(captured.clone()), false));
            let outcome = session
                .prepare(example.request, &Default::default())
                .and_then(|job| job.run(&StopFlag::new(), &mut |_| {}));
            match outcome {
                Err(error) if error.to_string().contains("libpcap") => {
                    eprintln!("skipped, no libpcap here: {}", example.request);
                }
                Err(error) => wrong.push(format!("{}\n  {error}", example.request)),
                Ok(finished) => {
                    wrong.extend(finished.report.nodes.iter().filter_map(rejects_unsaid));
                    let found = captured.text();
                    if found.trim_end() != example.output.trim_end() {
                        wrong.push(format!("{}\nmanual:\n{}\nfound:\n{found}", example.request, example.output));
                    }
                }
            }
        }
    }
    std::env::set_current_dir("/").unwrap();
    assert!(wrong.is_empty(), "{} of {count} examples:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 10, "{count} examples");
}

/// Names a filter that rejected blocks although its kind says that it rejects none.
fn rejects_unsaid(node: &engine::NodeReport) -> Option<String> {
    let kind = registry().find(node.label.split(' ').next()?)?;
    let says_so = kind.may_reject() || kind.is_source() || node.counters.blocks_rejected == 0;
    (!says_so).then(|| format!("`{}` rejects blocks, and does not say so", kind.name))
}

/// A kind's `before` is request text, and must be one that can be inserted.
#[test]
fn what_kinds_want_can_be_put_in() {
    let session = Session::new();
    for kind in registry().kinds() {
        if !kind.wants.iter().any(|(of, _)| *of == filter::Type::Frame) {
            continue;
        }
        let needed = kind.main_param().filter(|main| main.required).map_or("", |_| " y");
        let request = format!("pcap x | {}{needed}", kind.name);
        session.design(&request, &Default::default()).unwrap_or_else(|wrong| panic!("{request}: {wrong}"));
    }
}

/// Else a person would see fields such as `flow_id`.
#[test]
fn records_of_flows_have_a_summary_for_people() {
    let schemas = registry().kinds().into_iter().flat_map(|kind| [kind.schema, kind.other_schema]).flatten();
    let without: Vec<_> = schemas
        .filter(|schema| schema.field("flow_id").is_some() && schema.summary.is_empty())
        .map(|schema| schema.name)
        .collect();
    assert!(without.is_empty(), "no `.summary(&[...])`: {without:?}");
}
