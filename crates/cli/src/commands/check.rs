//! `streamline check`: says whether a request is right, and what it lacks here; runs nothing.

use crate::exit::Outcome;
use crate::hints;
use crate::place::PlaceArgs;
use crate::request_text::{RequestArgs, SettingArgs, SourceArgs};
use control::Design;
use daemon::confine;
use engine::Task;
use filter::{DeviceAccess, Kind, Spaces};
use rustix::fs::Access;
use std::path::{Path, PathBuf};
use streamline::Session;

/// Check a request without running it
///
/// Prints `ok` where the request is right. What it lacks on this machine (files, devices, rights, libpcap) stands on
/// standard error and is no error: it may be there when the request runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    settings: SettingArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let source = args.source.source(&args.request)?;
    let request = args.request.read()?;
    let session = args.place.session().reading(source).workers(args.settings.workers.clone());
    let design = session.design(&request.source, &request.variables);
    let design = design.map_err(|error| request.tell(error))?;
    hints::tell_idle(&design);
    let mut missing = session.missing(&design).map_err(|error| request.tell(error))?;
    missing.extend(of_devices(&session, &design));
    missing.extend(of_outputs(&design));
    missing.dedup();
    crate::print_data("ok\n")?;
    missing.iter().for_each(|missing| tell!("missing: {}", base::terminal::line(missing)));
    Ok(())
}

/// What it lacks of the devices that it reads or writes.
fn of_devices(session: &Session, design: &Design) -> Vec<String> {
    let mut missing = Vec::new();
    for node in &design.plan.nodes {
        let Task::Filter { kind, params } = &node.task else { continue };
        let Some(device) = params.text("device") else { continue };
        // A part of its flows may be meant.
        let name = device.split_once('@').map_or(device, |(device, _part)| device);
        if !matches!(kind.device, Some(DeviceAccess::Made))
            && let Err(error) = session.device(name)
        {
            missing.push(error.text);
        } else if !may_open(session, kind) {
            missing
                .push(format!("the right to open `{name}`: root has it, or a daemon (`streamline daemon`) shares it"));
        }
    }
    missing
}

/// May this process open devices by such a filter, or will a daemon?
fn may_open(session: &Session, kind: &Kind) -> bool {
    let held = confine::capabilities();
    let has = |wanted| held.iter().any(|(name, held)| *name == wanted && *held);
    let by_daemon = kind.spaces.has(Spaces::DAEMON) && session.has_daemon();
    by_daemon || has("CAP_NET_RAW") || (has("CAP_NET_ADMIN") && has("CAP_BPF"))
}

/// Where it could not write: a file's folder must be there, a folder of files is made.
fn of_outputs(design: &Design) -> Vec<String> {
    let mut missing = Vec::new();
    for node in &design.plan.nodes {
        let (Some(place), Task::Filter { params, .. }) = (node.writes_to(), &node.task) else { continue };
        let path = Path::new(place);
        let above = |path: &'_ Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_path_buf() };
        let is_made = params.text("dir") == Some(place);
        let nearest = path.ancestors().map(above).skip(usize::from(!is_made)).find(|above| !is_made || above.exists());
        let Some(folder) = nearest.filter(|_| !path.exists()) else { continue };
        if let Err(error) = rustix::fs::access(&folder, Access::WRITE_OK) {
            missing.push(format!(
                "a folder to write {place} in: {}: {}",
                folder.display(),
                std::io::Error::from(error)
            ));
        }
    }
    missing
}
