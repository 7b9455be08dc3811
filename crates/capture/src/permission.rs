//! What readers may see: which trust group they are of, and what of its devices that group is shown. Not who has which
//! right: that is for the daemon's policy.
//!
//! Every reader of a ring can see all of it, whatever it asked for. So what a group is not shown never comes into its rings:
//! each expression there is the reader's own behind the group's.

use crate::attachment::{Device, ETHERNET, RAW_IP};
use crate::capture_request::{CaptureError, CaptureErrorKind, PROGRAM_INSTRUCTIONS};
use program::Compile;
use program::ir::Program;
use std::sync::Arc;

/// Frames of which something may be shown: with an Ethernet header, and without any.
const LINK_TYPES: [u16; 2] = [ETHERNET, RAW_IP];

/// Characters of an expression that people are told at most.
const TOLD: usize = 200;

/// What a reader may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// Readers of one group may see all of each other's packets. All rights of a group are the same.
    pub group: u32,
    /// What of a device it is shown; none: all there is.
    pub only: Option<Arc<Only>>,
}

/// Of a group that is shown everything.
impl From<u32> for Permission {
    fn from(group: u32) -> Permission {
        Permission { group, only: None }
    }
}

impl Permission {
    /// What is shown of a device; none: everything.
    pub(crate) fn shown(&self, device: &Device) -> Result<Option<Shown>, CaptureError> {
        self.only.as_ref().map(|only| only.of(device)).transpose()
    }
}

/// An expression that says what is shown of devices, whichever link type theirs is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    text: String,
    /// By LINKTYPE number; or why there is none.
    programs: Vec<(u16, Result<Arc<Program>, String>)>,
}

impl Only {
    /// Of an expression, as people wrote it. Where it can be asked of no frames, why. May ask the network for names of hosts.
    pub fn new(text: &str, compiler: &dyn Compile) -> Result<Only, String> {
        let mut told: String = text.chars().take(TOLD).collect();
        if told.len() < text.len() {
            told += " ...";
        }
        let programs = LINK_TYPES.map(|link_type| (link_type, compile(text, link_type, compiler).map(Arc::new)));
        match &programs[0].1 {
            Err(why) if programs.iter().all(|(_, program)| program.is_err()) => Err(why.clone()),
            _ => Ok(Only { text: told, programs: programs.to_vec() }),
        }
    }

    fn of(&self, device: &Device) -> Result<Shown, CaptureError> {
        let Device { name, link_type, .. } = device;
        let known = self.programs.iter().find(|(known, _)| known == link_type);
        let why = match known {
            Some((_, Ok(program))) => return Ok(Shown { text: self.text.clone(), program: Arc::clone(program) }),
            Some((_, Err(why))) => why.clone(),
            None => format!("a policy knows none of link type {link_type}"),
        };
        let text = format!(
            "the daemon's policy shows of `{name}` only what `{}` passes, which cannot be asked of its frames: {why}",
            self.text
        );
        Err(CaptureError::new(CaptureErrorKind::Denied, text))
    }
}

/// What is shown of one device.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    text: String,
    program: Arc<Program>,
}

impl Shown {
    /// What passes without any other expression.
    pub(crate) fn program(&self) -> Arc<Program> {
        Arc::clone(&self.program)
    }

    /// What passes an expression of a reader's own, too.
    pub(crate) fn also(&self, own: Option<Arc<Program>>) -> Result<Arc<Program>, CaptureError> {
        let Some(own) = own else { return Ok(self.program()) };
        let both = self.program.and_then(&own);
        match both.map(|both| (program::to_cbpf(&both).len(), both)) {
            Ok((length, both)) if length <= PROGRAM_INSTRUCTIONS => Ok(Arc::new(both)),
            // No longer than an expression that nothing is added to. Who asks for less may have it, and decides above.
            _ => {
                let text = format!(
                    "the expression takes more than {PROGRAM_INSTRUCTIONS} instructions together with the policy's `{}`",
                    self.text
                );
                Err(CaptureError::new(CaptureErrorKind::Cannot, text))
            }
        }
    }

    /// For who reads this device.
    pub(crate) fn note(&self, device: &str) -> String {
        format!("the daemon's policy shows of `{device}` only what `{}` passes", self.text)
    }

    /// For who looks at the device's ring.
    pub(crate) fn how(&self) -> String {
        format!("; only what `{}` passes", self.text)
    }
}

/// What an expression is for frames of a link type.
fn compile(text: &str, link_type: u16, compiler: &dyn Compile) -> Result<Program, String> {
    let code = compiler.compile(text, link_type, 0).map_err(|error| error.message)?;
    if code.len() > PROGRAM_INSTRUCTIONS {
        return Err(format!("it takes {} instructions; at most {PROGRAM_INSTRUCTIONS}", code.len()));
    }
    let program = program::from_cbpf(&code).map_err(|error| error.to_string())?;
    // Not every writer runs what jumps back.
    if program.repeats() { Err("it repeats (`protochain`), which the kernel cannot run".into()) } else { Ok(program) }
}
