// SPDX-License-Identifier: MIT OR Apache-2.0
//! From bytes to records.

use crate::attr::Attr;
use crate::flags::{BranchFilter, ReadFormat, SampleFields};
use crate::record::cursor::{Cursor, DecodeError};
use crate::record::sample::Sample;
use crate::record::side_band::{
    Aux, AuxOutputHwId, BpfEvent, CallchainDeferred, Cgroup, Comm, Ksymbol, Lost, Mmap, Mmap2,
    Namespaces, ReadCounts, SampleId, SwitchCpuWide, Task, TextPoke, ThreadId, Throttle,
};
use crate::record::{Decoded, Header, RawRecord, Record};
use crate::sys;

/// How the records of an event are laid out: the part of its attributes that decides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// `sample_type`.
    pub sample_fields: SampleFields,
    /// `read_format`, for the sample field `READ`.
    pub read_format: ReadFormat,
    /// Whether records other than samples end in the identity fields.
    pub sample_id_all: bool,
    /// `branch_sample_type`, for the sample field `BRANCH_STACK`.
    pub branch_filter: BranchFilter,
    /// `sample_regs_user`, for the sample field `REGS_USER`.
    pub user_registers: u64,
    /// `sample_regs_intr`, for the sample field `REGS_INTR`.
    pub interrupt_registers: u64,
}

impl From<&Attr> for Format {
    fn from(attr: &Attr) -> Self {
        let raw = attr.raw();
        Self {
            sample_fields: attr.sample_fields(),
            read_format: attr.read_fields(),
            sample_id_all: raw.sample_id_all() != 0,
            branch_filter: BranchFilter::from_bits_retain(raw.branch_sample_type),
            user_registers: raw.sample_regs_user,
            interrupt_registers: raw.sample_regs_intr,
        }
    }
}

impl Format {
    /// Whether records carry the id of their event where it can be found without knowing their
    /// format: at the start of samples and at the end of all others.
    fn has_identifier(&self) -> bool {
        self.sample_fields.contains(SampleFields::IDENTIFIER) && self.sample_id_all
    }

    /// Decodes a record of an event with this format.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the record does not have this format.
    pub fn decode<'a>(&self, raw: RawRecord<'a>) -> Result<Decoded<'a>, DecodeError> {
        let unknown = self.sample_fields.difference(SampleFields::all());
        if !unknown.is_empty() {
            return Err(DecodeError::UnknownFields(unknown.bits()));
        }
        let Header { kind, misc, .. } = raw.header();
        if kind == sys::PERF_RECORD_SAMPLE {
            let sample = Sample::decode(self, raw.body())?;
            return Ok(Decoded {
                misc,
                id: sample.sample_id(),
                record: Record::Sample(sample),
            });
        }
        if kind == 0 || kind >= sys::PERF_RECORD_MAX {
            // Its trailer is where that of other records is, but nothing vouches for it.
            return Ok(Decoded {
                misc,
                id: SampleId::default(),
                record: Record::Unknown(raw),
            });
        }
        let (id, body) = self.split_trailer(raw.body())?;
        Ok(Decoded {
            misc,
            id,
            record: self.decode_side_band(raw, Cursor::new(body))?,
        })
    }

    /// The identity fields at the end of a record that is not a sample, and what is before them.
    fn split_trailer<'a>(&self, body: &'a [u8]) -> Result<(SampleId, &'a [u8]), DecodeError> {
        if !self.sample_id_all {
            return Ok((SampleId::default(), body));
        }
        let size = SampleId::size(self.sample_fields);
        let split = body.len().checked_sub(size);
        let Some((body, trailer)) = split.and_then(|at| body.split_at_checked(at)) else {
            return Err(DecodeError::Short {
                field: "sample_id",
                needed: size as u64,
                left: body.len(),
            });
        };
        let id = SampleId::take(self.sample_fields, &mut Cursor::new(trailer))?;
        Ok((id, body))
    }

    /// Decodes what is before the identity fields. Bytes behind the last field that is known here
    /// are padding, or fields of newer kernels.
    fn decode_side_band<'a>(
        &self,
        raw: RawRecord<'a>,
        mut body: Cursor<'a>,
    ) -> Result<Record<'a>, DecodeError> {
        Ok(match raw.header().kind {
            sys::PERF_RECORD_MMAP => Record::Mmap(Mmap::take(body)?),
            sys::PERF_RECORD_LOST => Record::Lost(Lost::take(body)?),
            sys::PERF_RECORD_COMM => Record::Comm(Comm::take(body)?),
            sys::PERF_RECORD_EXIT => Record::Exit(Task::take(body)?),
            sys::PERF_RECORD_THROTTLE => Record::Throttle(Throttle::take(body)?),
            sys::PERF_RECORD_UNTHROTTLE => Record::Unthrottle(Throttle::take(body)?),
            sys::PERF_RECORD_FORK => Record::Fork(Task::take(body)?),
            sys::PERF_RECORD_READ => Record::Read(ReadCounts::take(self.read_format, body)?),
            sys::PERF_RECORD_MMAP2 => Record::Mmap2(Mmap2::take(raw.header().misc, body)?),
            sys::PERF_RECORD_AUX => Record::Aux(Aux::take(body)?),
            sys::PERF_RECORD_ITRACE_START => Record::ItraceStart(ThreadId::take(&mut body)?),
            sys::PERF_RECORD_LOST_SAMPLES => Record::LostSamples {
                lost: body.u64("lost")?,
            },
            sys::PERF_RECORD_SWITCH => Record::Switch,
            sys::PERF_RECORD_SWITCH_CPU_WIDE => Record::SwitchCpuWide(SwitchCpuWide::take(body)?),
            sys::PERF_RECORD_NAMESPACES => Record::Namespaces(Namespaces::take(body)?),
            sys::PERF_RECORD_KSYMBOL => Record::Ksymbol(Ksymbol::take(body)?),
            sys::PERF_RECORD_BPF_EVENT => Record::BpfEvent(BpfEvent::take(body)?),
            sys::PERF_RECORD_CGROUP => Record::Cgroup(Cgroup::take(body)?),
            sys::PERF_RECORD_TEXT_POKE => Record::TextPoke(TextPoke::take(body)?),
            sys::PERF_RECORD_AUX_OUTPUT_HW_ID => Record::AuxOutputHwId(AuxOutputHwId::take(body)?),
            sys::PERF_RECORD_CALLCHAIN_DEFERRED => {
                Record::CallchainDeferred(CallchainDeferred::take(body)?)
            }
            _ => Record::Unknown(raw),
        })
    }
}

/// Decodes the records of a ring, to which one event writes or several.
#[derive(Clone, Debug)]
pub struct Decoder {
    first: Format,
    /// Formats by event id, in the order of ids, where they differ.
    others: Vec<(u64, Format)>,
}

impl Decoder {
    /// A decoder for events with the attributes `attr`. Of several events that share a ring and
    /// do not have the same format, see [`with_events`](Self::with_events).
    pub fn new(attr: &Attr) -> Self {
        Self {
            first: Format::from(attr),
            others: Vec::new(),
        }
    }

    /// A decoder for events with these ids ([`Event::id`](crate::Event::id)) and attributes.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Ambiguous`] if formats differ, and an event lacks the sample field
    /// `IDENTIFIER` or the identity fields in its other records: its records could not be told
    /// from the others'.
    pub fn with_events<'a>(
        events: impl IntoIterator<Item = (u64, &'a Attr)>,
    ) -> Result<Self, DecodeError> {
        let events = events.into_iter();
        let mut formats: Vec<_> = events.map(|(id, attr)| (id, Format::from(attr))).collect();
        let first = formats
            .first()
            .map(|&(_, format)| format)
            .unwrap_or_default();
        if formats.iter().all(|&(_, format)| format == first) {
            formats.clear();
        } else if !formats.iter().all(|(_, format)| format.has_identifier()) {
            return Err(DecodeError::Ambiguous);
        }
        formats.sort_by_key(|&(id, _)| id);
        Ok(Self {
            first,
            others: formats,
        })
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if it does not have the format of its event, or if its event is unknown.
    pub fn decode<'a>(&self, raw: RawRecord<'a>) -> Result<Decoded<'a>, DecodeError> {
        self.format(raw)?.decode(raw)
    }

    fn format(&self, raw: RawRecord<'_>) -> Result<&Format, DecodeError> {
        if self.others.is_empty() {
            return Ok(&self.first);
        }
        let body = raw.body();
        let id = match raw.header().kind {
            sys::PERF_RECORD_SAMPLE => body.first_chunk(),
            _ => body.last_chunk(),
        };
        let Some(id) = id else {
            return Err(DecodeError::Short {
                field: "identifier",
                needed: 8,
                left: body.len(),
            });
        };
        let id = u64::from_ne_bytes(*id);
        match self.others.binary_search_by_key(&id, |&(id, _)| id) {
            Ok(index) => Ok(&self.others[index].1),
            Err(_) => Err(DecodeError::UnknownEvent(id)),
        }
    }
}
