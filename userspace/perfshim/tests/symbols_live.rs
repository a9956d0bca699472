// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real processes, recorded by the kernel of the machine that runs the test, on one ring for each
//! CPU, and looked at when they have ended.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::process::Stdio;

use perfshim::Attr;
use perfshim::Decoder;
use perfshim::Event;
use perfshim::Exclude;
use perfshim::Rate;
use perfshim::Record;
use perfshim::Ring;
use perfshim::SampleFields;
use perfshim::SideBand;
use perfshim::Software;
use perfshim::Target;
use perfshim::discovery::CpuList;
use perfshim::symbols::Mode;
use perfshim::symbols::Symbolizer;

/// A shell that waits, is busy, starts a shell of its own by fork, and becomes another by exec.
const SCRIPT: &str = "read go
busy() { i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; }
busy
(busy)
exec sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'";

fn attributes() -> Attr {
    let fields = SampleFields::IP | SampleFields::CALLCHAIN | SampleFields::IDENTITY;
    let records = SideBand::MMAP | SideBand::MMAP2 | SideBand::TASK;
    let names = SideBand::COMM | SideBand::COMM_EXEC;
    Attr::new(Software::CpuClock)
        .sample(Rate::Frequency(2000), fields)
        .exclude(Exclude::KERNEL | Exclude::HV)
        .side_band(records | names)
        .inherit()
        .enabled()
}

fn open_on_all_cpus(attr: &Attr, pid: u32) -> Result<Vec<(Event, Ring)>, Box<dyn Error>> {
    let open = |cpu| {
        let event = Event::open(attr, Target::ThreadOnCpu(pid, cpu))?;
        let ring = Ring::map(&event, 1 << 20)?;
        Ok((event, ring))
    };
    CpuList::online()?.iter().map(open).collect()
}

#[test]
fn processes_that_ended_are_resolved() {
    let mut child = Command::new("sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let attr = attributes();
    let opened = open_on_all_cpus(&attr, child.id());
    let mut symbolizer = Symbolizer::new();
    symbolizer.load_process(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };

    // Ring after ring, so that records arrive out of the order of time.
    let decoder = Decoder::new(&attr);
    let mut samples = Vec::new();
    for (_event, ring) in &mut opened {
        let mut unread = ring.read().unwrap();
        while let Some(raw) = unread.next_record().unwrap() {
            let decoded = decoder.decode(raw).unwrap();
            symbolizer.learn(&decoded);
            match decoded.record {
                Record::Sample(_) => samples.push(raw.bytes().to_vec()),
                Record::Lost(lost) => panic!("{lost:?}"),
                _ => {}
            }
        }
    }

    let mut pids = BTreeSet::new();
    let mut objects = BTreeSet::new();
    for bytes in &samples {
        let raw = perfshim::RawRecord::new(bytes).unwrap();
        let decoded = decoder.decode(raw).unwrap();
        let Record::Sample(sample) = decoded.record else {
            unreachable!("only samples were kept");
        };
        let frames = symbolizer.sample(decoded.misc, &sample);
        let innermost = &frames[0];
        assert_eq!(innermost.mode, Mode::User);
        let object = innermost.object.as_deref();
        objects.insert(object.unwrap_or_else(|| panic!("{innermost:?}")).to_owned());
        let thread = sample.thread.unwrap();
        pids.insert(thread.pid);
        let comm = symbolizer.comm(thread.tid, sample.time.unwrap());
        assert_eq!(comm.as_deref(), Some("sh"));
    }
    assert!(samples.len() > 20, "{}", samples.len());
    assert_eq!(pids.len(), 2, "the shell and its child");
    assert!(
        objects.iter().any(|object| object.starts_with('/')),
        "{objects:?}"
    );
}
