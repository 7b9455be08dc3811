//! `streamline check`: says whether a request is right, and runs nothing.

use crate::Exit;
use crate::request_text::RequestArgs;
use control::Design;
use driver::device;
use driver::namespace::Namespace;
use engine::Task;
use std::collections::BTreeSet;
use streamline::Session;

/// Check a request without running it
///
/// Devices that are not there now are told of, and no error: they may come.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,
}

pub(crate) fn run(args: &Args) -> Exit {
    let request = match args.request.read() {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    match Session::new().design(&request.source, &request.variables) {
        Ok(design) => {
            for device in missing_devices(&design) {
                tell!("note: there is no device `{device}` now");
            }
            Exit::Done
        }
        Err(error) => request.tell(&error),
    }
}

/// Devices that it would read and that are not there. They may come: that is no error of the request.
fn missing_devices(design: &Design) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for node in &design.plan.nodes {
        let Task::Filter { kind, params } = &node.task else { continue };
        // `tuntap` makes its own.
        if kind.is_source()
            && kind.name != "tuntap"
            && let Some(device) = params.text("device")
        {
            // A part of its flows may be meant.
            wanted.insert(device.split_once('@').map_or(device, |(device, _part)| device).to_string());
        }
    }
    if !wanted.is_empty()
        && let Ok(namespace) = Namespace::current()
        && let Ok(there) = device::list(&namespace)
    {
        wanted.retain(|wanted| !there.iter().any(|device| device.link.name == *wanted));
    } else {
        // Nobody knows.
        wanted.clear();
    }
    wanted
}
