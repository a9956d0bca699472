// SPDX-License-Identifier: GPL-2.0

//! Per-CPU data.
//!
//! [`PerCpu`] holds one value for each possible CPU. Code that cannot leave its CPU reaches the
//! value of that CPU with a token, [`OnCpu`], that only such code is given; what runs elsewhere
//! names the CPU.
//!
//! The value is always shared: an NMI can interrupt code that uses it, and another CPU may look at
//! it. So a `PerCpu` only gives out `&T`, and a value that changes is made of [`LocalCell`]s or of
//! locks and atomics from [`kernel::sync`].
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     percpu::{
//!         LocalCell,
//!         PerCpu, //
//!     },
//!     smp, //
//! };
//!
//! // How often each CPU was visited.
//! let visits = PerCpu::new(|_cpu| LocalCell::new(0u64))?;
//!
//! smp::call_each(|on| {
//!     let mine = visits.get(on);
//!     mine.store(mine.load() + 1);
//! });
//!
//! for cpu in smp::cpus(smp::online()) {
//!     assert_eq!(visits.on(cpu).load(), 1);
//! }
//! # Ok::<(), Error>(())
//! ```

use crate::{
    bindings,
    smp, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        AtomicPtr,
        AtomicU32,
        AtomicU64,
        Ordering, //
    },
};
use kernel::{
    cpu::CpuId,
    prelude::*, //
};

/// Proof that the running code stays on one CPU, because interrupts are off there.
///
/// It is handed to code that the kernel calls in such a context: callbacks of perf and of CPU PM,
/// interrupt handlers, [functions called on a CPU](smp). It cannot be sent to another
/// context, and borrows from the call that it was made for.
///
/// # Invariants
///
/// While the value exists, the code that owns it runs on `cpu` with interrupts disabled, and `offset`
/// is the CPU's.
#[derive(Clone, Copy)]
pub struct OnCpu<'a> {
    cpu: CpuId,
    offset: usize,
    // Neither `Send` nor `Sync`: another thread may be on another CPU.
    _here: PhantomData<(&'a (), *mut ())>,
}

impl OnCpu<'_> {
    /// Makes the token for a CPU that is already known.
    ///
    /// # Safety
    ///
    /// For as long as the value exists the caller must be running on `cpu` with interrupts
    /// disabled.
    #[inline]
    pub unsafe fn new(cpu: CpuId) -> Self {
        debug_assert!(cpu == CpuId::current());

        // INVARIANT: The caller promises it.
        Self {
            cpu,
            offset: offset_of(cpu),
            _here: PhantomData,
        }
    }

    /// Makes the token for the CPU that runs the caller.
    ///
    /// # Safety
    ///
    /// For as long as the value exists interrupts must be disabled.
    #[inline]
    pub unsafe fn current() -> Self {
        // SAFETY: The caller keeps interrupts off, so the CPU that it is on now is the one it
        // stays on.
        unsafe { Self::new(this_cpu()) }
    }

    /// The CPU.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The address of this CPU's copy of the per-CPU object that `base` stands for.
    #[inline]
    pub(crate) fn address<T>(&self, base: *const T) -> *const T {
        address_at(base, self.offset)
    }
}

/// The CPU that runs the caller: [`CpuId::current`] without a call into C, which the callbacks of
/// perf would make with each context switch.
#[cfg(CONFIG_ARM64)]
#[inline]
fn this_cpu() -> CpuId {
    let current: *const bindings::task_struct;

    // SAFETY: In the kernel SP_EL0 holds the address of the task that runs, as C's get_current()
    // knows. To read it has no effect.
    unsafe {
        core::arch::asm!(
            "mrs {}, sp_el0",
            out(reg) current,
            options(nomem, nostack, preserves_flags),
        )
    };

    // SAFETY: The task cannot end while it runs. The scheduler notes there which CPU it runs on,
    // before it does.
    unsafe { CpuId::from_u32_unchecked((&raw const (*current).thread_info.cpu).read_volatile()) }
}

#[cfg(not(CONFIG_ARM64))]
#[inline]
fn this_cpu() -> CpuId {
    CpuId::current()
}

/// How far `cpu`'s copies of per-CPU objects are from what stands for the objects.
#[inline]
fn offset_of(cpu: CpuId) -> usize {
    let offsets: *const usize = (&raw const bindings::__per_cpu_offset).cast();

    // SAFETY: The kernel fills `__per_cpu_offset` at boot and never changes it again; it has an
    // entry for each CPU number below `nr_cpu_ids`, and so for each `CpuId`.
    unsafe { *offsets.add(cpu.as_u32() as usize) }
}

/// The address of a copy of the per-CPU object that `base` stands for.
#[inline]
fn address_at<T>(base: *const T, offset: usize) -> *const T {
    // `base` and the result lie in different objects as far as Rust is concerned: the per-CPU
    // areas are memory that C made, whose provenance is exposed.
    core::ptr::with_exposed_provenance(base.expose_provenance().wrapping_add(offset))
}

/// The address of `cpu`'s copy of the per-CPU object that `base` stands for.
#[inline]
pub(crate) fn address_on<T>(base: *const T, cpu: CpuId) -> *const T {
    address_at(base, offset_of(cpu))
}

/// One `T` for each possible CPU.
///
/// # Invariants
///
/// - `base` was returned by `__alloc_percpu_gfp()` for the layout of `T` and is not freed yet.
/// - The copy of each possible CPU holds a valid, initialised and pinned `T`.
pub struct PerCpu<T: Send + Sync + 'static> {
    base: NonNull<T>,
}

// SAFETY: Moving a `PerCpu` moves the ownership of its `T`s, and `T` is `Send`. The memory belongs
// to no thread.
unsafe impl<T: Send + Sync + 'static> Send for PerCpu<T> {}

// SAFETY: A shared `PerCpu` gives out `&T` only, and `T` is `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for PerCpu<T> {}

impl<T: Send + Sync + 'static> PerCpu<T> {
    /// Allocates the values and initialises each with what `init` returns for its CPU.
    ///
    /// May sleep. Fails with [`ENOMEM`] when there is no memory and with the initialiser's error
    /// when that fails; the values made until then are dropped.
    pub fn new<I, E>(mut init: impl FnMut(CpuId) -> I) -> Result<Self>
    where
        I: PinInit<T, E>,
        Error: From<E>,
    {
        const { assert!(size_of::<T>() != 0, "a per-CPU value needs a size") };

        // SAFETY: The size is not zero; any alignment of a Rust type is a power of two.
        let base = unsafe {
            bindings::__alloc_percpu_gfp(size_of::<T>(), align_of::<T>(), bindings::GFP_KERNEL)
        };
        let base = NonNull::new(base.cast::<T>()).ok_or(ENOMEM)?;
        let mut filling = Filling { base, filled: 0 };

        for cpu in smp::cpus(smp::possible()) {
            let slot = address_on(base.as_ptr(), cpu).cast_mut();

            // SAFETY: `slot` is memory for a `T` that nobody else uses yet. When the initialiser
            // fails, it is not touched again. It never moves, and the value is dropped in place
            // before the memory is freed.
            unsafe { init(cpu).__init(slot) }?;
            filling.filled = cpu.as_u32() + 1;
        }

        core::mem::forget(filling);

        // INVARIANT: The loop initialised the value of each possible CPU.
        Ok(Self { base })
    }

    /// The value of this CPU.
    #[inline]
    pub fn get<'a>(&'a self, on: &'a OnCpu<'_>) -> &'a T {
        // SAFETY: A CPU that runs code is a possible one, so by the type invariant its copy is a
        // valid `T`. It lives as long as `self`, and only shared references to it are made.
        unsafe { &*on.address(self.base.as_ptr()) }
    }

    /// The value of `cpu`. What is read there may change at any time.
    ///
    /// A number that no CPU has, although it is below the number of CPUs, stands for the first CPU.
    pub fn on(&self, cpu: CpuId) -> &T {
        let possible = smp::possible();
        let cpu = if possible.test(cpu) {
            cpu
        } else {
            smp::cpus(possible).next().unwrap_or(cpu)
        };

        // SAFETY: `cpu` is in the set of possible CPUs, which has at least one member.
        unsafe { self.on_possible(cpu) }
    }

    /// The value of `cpu`, like [`PerCpu::on`].
    ///
    /// # Safety
    ///
    /// `cpu` must be possible.
    #[inline]
    pub(crate) unsafe fn on_possible(&self, cpu: CpuId) -> &T {
        // SAFETY: By the type invariant and the caller's promise its copy is a valid `T`. It lives
        // as long as `self`, and only shared references to it are made.
        unsafe { &*address_on(self.base.as_ptr(), cpu) }
    }

    /// The `void __percpu *` that stands for the values, for C functions that take one.
    pub(crate) fn as_raw(&self) -> *mut kernel::ffi::c_void {
        self.base.as_ptr().cast()
    }
}

impl<T: Send + Sync + 'static> Drop for PerCpu<T> {
    fn drop(&mut self) {
        drop(Filling {
            base: self.base,
            filled: kernel::cpu::nr_cpu_ids(),
        });
    }
}

/// Values of which those of the possible CPUs below `filled` are initialised. Dropping it drops
/// these and frees the memory.
struct Filling<T> {
    base: NonNull<T>,
    filled: u32,
}

impl<T> Drop for Filling<T> {
    fn drop(&mut self) {
        let filled = smp::cpus(smp::possible()).take_while(|cpu| cpu.as_u32() < self.filled);

        for cpu in filled {
            // SAFETY: The value is initialised, this is its only owner, and nothing uses it after.
            unsafe { core::ptr::drop_in_place(address_on(self.base.as_ptr(), cpu).cast_mut()) };
        }

        // SAFETY: `base` came from `__alloc_percpu_gfp()`, and this owner of it goes away.
        unsafe { bindings::free_percpu(self.base.as_ptr().cast()) };
    }
}

/// A word that code shares with what interrupts it on the same CPU.
///
/// Loads and stores are single, untorn and unordered instructions, so an NMI sees either the old
/// value or the new one. Another CPU that looks at the word gets a value that was there at some
/// time. It is not a means to order anything between CPUs; for that use [`kernel::sync::atomic`],
/// whose operations are calls into C where C's inline functions cannot be inlined.
///
/// # Examples
///
/// ```
/// use kernel::percpu::LocalCell;
///
/// let mask = LocalCell::new(0b1u64);
///
/// mask.store(mask.load() | 0b100);
/// assert_eq!(mask.load(), 0b101);
/// ```
#[repr(transparent)]
pub struct LocalCell<T: Word>(T::Atomic);

impl<T: Word> LocalCell<T> {
    /// Makes a cell that holds `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        Self(value.into_atomic())
    }

    /// The value.
    #[inline(always)]
    pub fn load(&self) -> T {
        T::load(&self.0)
    }

    /// Replaces the value.
    #[inline(always)]
    pub fn store(&self, value: T) {
        T::store(&self.0, value)
    }
}

/// What fits into a [`LocalCell`].
pub trait Word: Copy {
    /// The atomic of the same size.
    #[doc(hidden)]
    type Atomic: Send + Sync;

    #[doc(hidden)]
    fn into_atomic(self) -> Self::Atomic;

    #[doc(hidden)]
    fn load(from: &Self::Atomic) -> Self;

    #[doc(hidden)]
    fn store(to: &Self::Atomic, value: Self);
}

macro_rules! impl_word {
    ($([$($generics:tt)*] $word:ty => $atomic:ty;)*) => {$(
        impl<$($generics)*> Word for $word {
            type Atomic = $atomic;

            #[inline(always)]
            fn into_atomic(self) -> $atomic {
                <$atomic>::new(self)
            }

            #[inline(always)]
            fn load(from: &$atomic) -> Self {
                from.load(Ordering::Relaxed)
            }

            #[inline(always)]
            fn store(to: &$atomic, value: Self) {
                to.store(value, Ordering::Relaxed)
            }
        }
    )*};
}

impl_word! {
    [] bool => AtomicBool;
    [] u32 => AtomicU32;
    [] u64 => AtomicU64;
    [T] *mut T => AtomicPtr<T>;
}

#[kunit_tests(rust_percpu)]
mod tests {
    use super::*;
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };

    /// Counts how many of it exist.
    struct Guest(Arc<Atomic<u32>>);

    impl Guest {
        fn new(guests: &Arc<Atomic<u32>>) -> Self {
            guests.fetch_add(1, Relaxed);
            Self(guests.clone())
        }
    }

    impl Drop for Guest {
        fn drop(&mut self) {
            self.0.fetch_add(u32::MAX, Relaxed);
        }
    }

    fn possible() -> u32 {
        smp::possible().weight()
    }

    #[test]
    fn each_cpu_has_its_own_value() -> Result {
        let values = PerCpu::new(|cpu| LocalCell::new(100 + cpu.as_u32()))?;

        smp::call_each(|on| {
            let value = values.get(on);
            value.store(value.load() + 1000);
        });

        for cpu in smp::cpus(smp::online()) {
            assert_eq!(values.on(cpu).load(), 1100 + cpu.as_u32());
        }
        Ok(())
    }

    #[test]
    fn all_values_are_dropped() -> Result {
        let guests = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let values = PerCpu::new(|_cpu| Guest::new(&guests))?;

        assert_eq!(guests.load(Relaxed), possible());
        drop(values);
        assert_eq!(guests.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn a_failure_drops_what_was_made() -> Result {
        let guests = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let last = possible() - 1;

        let result = PerCpu::<Guest>::new(|_cpu| {
            if guests.load(Relaxed) < last {
                Ok(Guest::new(&guests))
            } else {
                Err(ENXIO)
            }
        });

        assert!(matches!(result, Err(ENXIO)));
        assert_eq!(guests.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn values_are_aligned() -> Result {
        #[repr(align(64))]
        struct Line(LocalCell<u64>);

        let lines = PerCpu::new(|cpu| Line(LocalCell::new(cpu.as_u32().into())))?;

        for cpu in smp::cpus(smp::possible()) {
            let line = lines.on(cpu);
            assert_eq!(core::ptr::from_ref(line).addr() % 64, 0);
            assert_eq!(line.0.load(), u64::from(cpu.as_u32()));
        }
        Ok(())
    }
}
