//! `streamline demo`: the main job on a small bundled capture, into a fresh folder.

use crate::exit::{CommandError, Outcome};
use crate::report;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use streamline::{Session, StopFlag};

/// Extract the objects of a small bundled capture into a fresh folder, and say what to try next
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the fresh folder is made
    #[arg(default_value = ".")]
    within: PathBuf,
}

/// The capture. captures/README.md says where it comes from.
const CAPTURE: &[u8] = include_bytes!("../../../../captures/web.pcap");

pub(crate) fn run(args: &Args) -> Outcome {
    let folder = fresh_folder(&args.within)?;
    let capture = folder.join("web.pcap");
    std::fs::write(&capture, CAPTURE)
        .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", capture.display())))?;
    let out = folder.join("out");
    let request = "pcap $capture | http | files dir=$out";
    let variables = BTreeMap::from([
        ("capture".to_string(), capture.display().to_string()),
        ("out".to_string(), out.display().to_string()),
    ]);
    let (capture, out, folder) = (capture.display(), out.display(), folder.display());
    let program = std::env::args().next().unwrap_or_else(|| "streamline".to_string());
    println!("A small capture is in {capture}. This extracts what HTTP carried in it:\n");
    println!("  {program} run 'pcap {capture} | http | files dir={out}'\n");
    let job = Session::new().prepare(request, &variables)?;
    let finished = job.run(&StopFlag::new(), &mut |_| {})?;
    print!("{}", report::text(&finished.report, Some(finished.end)));
    println!("\nThe objects, and an index of them:\n\n  ls {out}\n  cat {out}/index.jsonl\n");
    println!("Try next:\n");
    println!("  {program} run 'pcap {capture} | inspect' | head");
    println!("  {program} run 'pcap {capture} | tcp | files dir={folder}/streams'");
    println!("  {program} run 'pcap {capture} | {{ http | json + count }}'");
    println!("  {program} explain 'pcap {capture} | http | files dir=objects'");
    println!("  {program} filters");
    Ok(())
}

fn fresh_folder(within: &Path) -> Result<PathBuf, CommandError> {
    for number in 1..1000 {
        let name = if number == 1 { "streamline-demo".to_string() } else { format!("streamline-demo-{number}") };
        let folder = within.join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CommandError::Failed(format!("cannot make {}: {error}", folder.display()))),
        }
    }
    Err(CommandError::Failed(format!("{} holds too many demo folders; remove some", within.display())))
}
