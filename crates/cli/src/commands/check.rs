//! `streamline check`: says whether a request is right, and which files, devices and rights it lacks here. Runs nothing.

use crate::exit::Outcome;
use crate::hints;
use crate::place::PlaceArgs;
use crate::request_text::{RequestArgs, SourceArgs};
use control::Design;
use daemon::confine;
use engine::Task;
use filter::{DeviceAccess, Kind, Spaces};
use rustix::fs::Access;
use std::path::{Path, PathBuf};
use streamline::Session;

/// Check a request without running it
///
/// Prints `ok` if the request is right. Missing files, devices, rights and libpcap are listed on standard error. They
/// are no error: they may be there when the request runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (session, request) = args.source.session(&args.place, &args.request)?;
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

fn of_devices(session: &Session, design: &Design) -> Vec<String> {
    let mut missing = Vec::new();
    for node in &design.plan.nodes {
        let Task::Filter { kind, params } = &node.task else { continue };
        let Some(device) = params.text("device") else { continue };
        // The request may name a part of the device's flows.
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

/// Whether this process, or else a daemon, may open devices for such a filter.
fn may_open(session: &Session, kind: &Kind) -> bool {
    let held = confine::capabilities();
    let has = |wanted| held.iter().any(|(name, held)| *name == wanted && *held);
    let by_daemon = kind.spaces.has(Spaces::DAEMON) && session.has_daemon();
    by_daemon || has("CAP_NET_RAW") || (has("CAP_NET_ADMIN") && has("CAP_BPF"))
}

/// Says where the request could not write: a file needs its folder; a folder of files is created.
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
