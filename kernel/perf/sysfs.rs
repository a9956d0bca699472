// SPDX-License-Identifier: GPL-2.0

//! The files of a PMU in sysfs.
//!
//! User space reads in `/sys/bus/event_source/devices/NAME/` what events a PMU has (`events`),
//! which bits of `struct perf_event_attr` mean what (`format`), and more. A driver declares these
//! files as constants of [`Driver`](super::Driver).
//!
//! C headers: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h),
//! [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)
//!
//! # Examples
//!
//! ```
//! use kernel::perf::sysfs::{
//!     ConfigWord,
//!     EventAttr,
//!     FormatAttr, //
//! };
//!
//! // `events/cpu_cycles` contains "event=0x0011".
//! const CPU_CYCLES: EventAttr = EventAttr::new(c"cpu_cycles", 0x11);
//! assert_eq!(CPU_CYCLES.id(), Some(0x11));
//!
//! // `format/threshold` contains "config1:4-15".
//! const THRESHOLD: FormatAttr = FormatAttr::new(c"threshold", ConfigWord::Config1, 4, 15);
//! assert_eq!(THRESHOLD.get(0xf_abc3), 0xabc);
//! ```

use super::{
    Driver,
    Pmu, //
};
use crate::bindings;
use core::ptr::null_mut;
use kernel::{
    ffi::{
        c_char,
        c_int, //
    },
    fmt::{
        self,
        Write, //
    },
    page::PAGE_SIZE,
    prelude::*,
    str::Formatter, //
};

/// A file in the folder `events`: an event with a name.
pub struct EventAttr {
    name: &'static CStr,
    terms: Terms,
}

/// What an event's file contains.
enum Terms {
    Event(u64),
    Text(&'static str),
}

impl EventAttr {
    /// An event that is chosen by the number `id` in the field `event`: the file contains
    /// `event=0x` and at least four hexadecimal digits.
    pub const fn new(name: &'static CStr, id: u64) -> Self {
        Self {
            name,
            terms: Terms::Event(id),
        }
    }

    /// An event that is chosen by other terms, such as `type=0x3,channel=0x1`, or a file that
    /// belongs to an event, such as `bytes.unit`.
    pub const fn with_text(name: &'static CStr, text: &'static str) -> Self {
        Self {
            name,
            terms: Terms::Text(text),
        }
    }

    /// The name of the file.
    pub const fn name(&self) -> &'static CStr {
        self.name
    }

    /// The number that [`EventAttr::new`] was given.
    pub const fn id(&self) -> Option<u64> {
        match self.terms {
            Terms::Event(id) => Some(id),
            Terms::Text(_) => None,
        }
    }
}

/// One of the words of `struct perf_event_attr` that a PMU defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigWord {
    /// `config`
    Config,
    /// `config1`
    Config1,
    /// `config2`
    Config2,
    /// `config3`
    Config3,
}

impl ConfigWord {
    const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Config1 => "config1",
            Self::Config2 => "config2",
            Self::Config3 => "config3",
        }
    }
}

/// A file in the folder `format`: a field with a name.
///
/// # Invariants
///
/// `low <= high < 64`.
pub struct FormatAttr {
    name: &'static CStr,
    word: ConfigWord,
    low: u32,
    high: u32,
}

impl FormatAttr {
    /// The field from bit `low` to bit `high`, both included, of `word`.
    ///
    /// # Panics
    ///
    /// When that is not a field of a 64-bit word; at compile time if it is a constant, as it should
    /// be.
    pub const fn new(name: &'static CStr, word: ConfigWord, low: u32, high: u32) -> Self {
        assert!(low <= high && high < 64, "not a field of a 64-bit word");

        // INVARIANT: It was checked.
        Self {
            name,
            word,
            low,
            high,
        }
    }

    /// The word that the field is in.
    #[inline]
    pub const fn word(&self) -> ConfigWord {
        self.word
    }

    /// The value of the field in `word`.
    #[inline]
    pub const fn get(&self, word: u64) -> u64 {
        (word >> self.low) & (u64::MAX >> (63 - (self.high - self.low)))
    }
}

/// A file of which the driver writes the contents.
pub struct Attribute<T> {
    name: &'static CStr,
    show: fn(&T, &mut Formatter<'_>) -> fmt::Result,
}

impl<T> Attribute<T> {
    /// The file `name`, into which `show` writes, including the end of the line.
    pub const fn new(name: &'static CStr, show: fn(&T, &mut Formatter<'_>) -> fmt::Result) -> Self {
        Self { name, show }
    }
}

/// The declaration that a file belongs to.
enum Item<T: 'static> {
    Event(&'static EventAttr),
    Format(&'static FormatAttr),
    Attribute(&'static Attribute<T>),
}

impl<T: Driver> Item<T> {
    fn name(&self) -> &'static CStr {
        match self {
            Self::Event(event) => event.name,
            Self::Format(format) => format.name,
            Self::Attribute(attribute) => attribute.name,
        }
    }

    fn is_visible(&self, data: &T) -> bool {
        match self {
            Self::Event(event) => data.event_visible(event),
            Self::Format(format) => data.format_visible(format),
            Self::Attribute(_) => true,
        }
    }

    fn show(&self, data: &T, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => match event.terms {
                Terms::Event(id) => to.write_fmt(format_args!("event=0x{id:04x}\n")),
                Terms::Text(text) => to.write_fmt(format_args!("{text}\n")),
            },
            Self::Format(format) => {
                let word = format.word.name();

                if format.low == format.high {
                    to.write_fmt(format_args!("{word}:{}\n", format.low))
                } else {
                    to.write_fmt(format_args!("{word}:{}-{}\n", format.low, format.high))
                }
            }
            Self::Attribute(attribute) => (attribute.show)(data, to),
        }
    }
}

/// A file: the part that C knows, and ours.
#[repr(C)]
struct File<T: 'static> {
    attr: bindings::device_attribute,
    item: Item<T>,
}

impl<T: Driver> File<T> {
    fn new(item: Item<T>) -> Self {
        // SAFETY: All fields may be zero: pointers and functions are then absent, numbers zero.
        let mut attr: bindings::device_attribute = unsafe { core::mem::zeroed() };

        attr.attr.name = item.name().as_char_ptr();
        attr.attr.mode = 0o444;
        #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
        {
            // Lockdep wants a class in static memory, as sysfs_attr_init() makes one. Reading one
            // of our files never nests in reading another, so they all can share it.
            let class = kernel::static_lock_class!();

            // `LockClassKey` is a transparent wrapper of the C struct.
            attr.attr.key = core::ptr::from_ref(class.get_ref()).cast_mut().cast();
        }
        attr.__bindgen_anon_1.show = Some(show::<T>);

        Self { attr, item }
    }
}

/// A folder with files.
///
/// # Invariants
///
/// - `group` points to `_attributes`, which ends with a null pointer.
/// - All others point to the `attr`s of `_files`, which are not moved.
struct Folder<T: 'static> {
    group: bindings::attribute_group,
    // Only C looks at these, through the pointers.
    _attributes: KVec<*mut bindings::attribute>,
    _files: KVec<File<T>>,
}

impl<T: Driver> Folder<T> {
    fn new(
        name: Option<&'static CStr>,
        items: impl ExactSizeIterator<Item = Item<T>>,
    ) -> Result<Self> {
        let mut files = KVec::with_capacity(items.len(), GFP_KERNEL)?;
        for item in items {
            files.push(File::new(item), GFP_KERNEL)?;
        }

        // From here on `files` does not grow, so its elements stay where they are. What C gets is
        // a pointer to a whole `File`, in which the attribute is the first part.
        let first: *mut File<T> = files.as_mut_ptr();
        let mut attributes = KVec::with_capacity(files.len() + 1, GFP_KERNEL)?;
        for index in 0..files.len() {
            attributes.push(first.wrapping_add(index).cast(), GFP_KERNEL)?;
        }
        attributes.push(null_mut(), GFP_KERNEL)?;

        // SAFETY: All fields may be zero: pointers and functions are then absent.
        let mut group: bindings::attribute_group = unsafe { core::mem::zeroed() };
        group.name = name.map_or(core::ptr::null(), |name| name.as_char_ptr());
        group.__bindgen_anon_1.is_visible = Some(is_visible::<T>);
        group.__bindgen_anon_2.attrs = attributes.as_mut_ptr();

        // INVARIANT: As set up above.
        Ok(Self {
            group,
            _attributes: attributes,
            _files: files,
        })
    }
}

/// All files of a PMU of the driver `T`.
///
/// # Invariants
///
/// `groups` ends with a null pointer; all others point to the `group`s of `_folders`, which are not
/// moved.
pub(super) struct Groups<T: 'static> {
    groups: KVec<*const bindings::attribute_group>,
    // Only C looks at these, through the pointers.
    _folders: KVec<Folder<T>>,
}

// SAFETY: The pointers point into memory that moves along, and that nobody changes; the
// declarations are constants.
unsafe impl<T: Driver> Send for Groups<T> {}

impl<T: Driver> Groups<T> {
    /// Makes the folders that `T` declares files for.
    pub(super) fn new() -> Result<Self> {
        let mut folders = KVec::with_capacity(4, GFP_KERNEL)?;

        if !T::EVENTS.is_empty() {
            let items = T::EVENTS.iter().map(Item::Event);
            folders.push(Folder::new(Some(c"events"), items)?, GFP_KERNEL)?;
        }
        if !T::FORMAT.is_empty() {
            let items = T::FORMAT.iter().map(Item::Format);
            folders.push(Folder::new(Some(c"format"), items)?, GFP_KERNEL)?;
        }
        if !T::CAPS.is_empty() {
            let items = T::CAPS.iter().map(Item::Attribute);
            folders.push(Folder::new(Some(c"caps"), items)?, GFP_KERNEL)?;
        }
        if !T::PLAIN.is_empty() {
            let items = T::PLAIN.iter().map(Item::Attribute);
            folders.push(Folder::new(None, items)?, GFP_KERNEL)?;
        }

        // From here on `folders` does not grow, so its elements stay where they are.
        let first: *const Folder<T> = folders.as_ptr();
        let mut groups = KVec::with_capacity(folders.len() + 1, GFP_KERNEL)?;
        for index in 0..folders.len() {
            let folder = first.wrapping_add(index);

            // SAFETY: `folder` points to an element of `folders`.
            groups.push(unsafe { &raw const (*folder).group }, GFP_KERNEL)?;
        }
        groups.push(core::ptr::null(), GFP_KERNEL)?;

        // INVARIANT: As set up above.
        Ok(Self {
            groups,
            _folders: folders,
        })
    }

    /// The value for `pmu::attr_groups`. It may be used for as long as `self` exists.
    pub(super) fn as_raw(&mut self) -> *mut *const bindings::attribute_group {
        self.groups.as_mut_ptr()
    }
}

/// # Safety
///
/// `attr` must be one that a [`Folder<T>`] has given to sysfs, and `dev` the device of a registered
/// [`Pmu<T>`].
unsafe fn parts<'a, T: Driver>(
    dev: *mut bindings::device,
    attr: *mut bindings::attribute,
) -> (&'a Pmu<T>, &'a Item<T>) {
    // SAFETY: `dev` is a valid device, and perf core sets its driver data to the `struct pmu`.
    let pmu = unsafe { Pmu::from_raw(bindings::dev_get_drvdata(dev).cast()) };

    // SAFETY: By `Folder`'s invariant `attr` is the start of a `File<T>`, which exists until the
    // PMU is unregistered; sysfs waits for its readers then.
    let file = unsafe { &*attr.cast::<File<T>>() };

    (pmu, &file.item)
}

/// # Safety
///
/// To be called by sysfs only, for a file of a [`Folder<T>`], with a page in `buf`.
unsafe extern "C" fn show<T: Driver>(
    dev: *mut bindings::device,
    attr: *mut bindings::device_attribute,
    buf: *mut c_char,
) -> isize {
    // SAFETY: By the requirements of this function; perf core gives the files that were passed
    // with a `Pmu<T>` to this PMU's device only.
    let (pmu, item) = unsafe { parts::<T>(dev, attr.cast()) };

    // SAFETY: sysfs provides a zeroed page for the contents.
    let page = unsafe { core::slice::from_raw_parts_mut(buf, PAGE_SIZE) };
    let mut to = Formatter::new(page);

    match item.show(pmu, &mut to) {
        Ok(()) => to.bytes_written().try_into().unwrap_or(0),
        // It did not fit.
        Err(fmt::Error) => EFBIG.to_errno().try_into().unwrap_or(0),
    }
}

/// # Safety
///
/// To be called by sysfs only, for a file of a [`Folder<T>`] and the device's object.
unsafe extern "C" fn is_visible<T: Driver>(
    kobj: *mut bindings::kobject,
    attr: *mut bindings::attribute,
    _index: c_int,
) -> bindings::umode_t {
    // SAFETY: The object is that of the device for which perf core creates the files.
    let dev = unsafe { kernel::container_of!(kobj, bindings::device, kobj) };

    // SAFETY: By the requirements of this function.
    let (pmu, item) = unsafe { parts::<T>(dev, attr) };

    if item.is_visible(pmu) {
        // SAFETY: `attr` is valid, and nobody changes it.
        unsafe { (*attr).mode }
    } else {
        0
    }
}
