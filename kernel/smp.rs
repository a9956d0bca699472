// SPDX-License-Identifier: GPL-2.0

//! Sets of CPUs, who owns them, and calling a function on a CPU.
//!
//! C headers: [`include/linux/smp.h`](srctree/include/linux/smp.h),
//! [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{
//!     cpu::CpuId,
//!     smp, //
//! };
//!
//! let first = smp::cpus(smp::online()).next().ok_or(ENODEV)?;
//!
//! // What only that CPU can tell, such as a register of its own.
//! let answered = smp::call(first, |on| on.cpu())?;
//! assert_eq!(answered, first);
//!
//! // Any CPU of a set, this one if it is in it.
//! smp::call_any(smp::online(), |on| assert!(smp::online().test(on.cpu())))?;
//! # Ok::<(), Error>(())
//! ```

use crate::{
    bindings,
    percpu::OnCpu, //
};
use core::ops::Deref;
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    cpumask::{
        Cpumask,
        CpumaskVar, //
    },
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    fmt,
    prelude::*,
    sync::atomic::{
        AtomicFlag,
        Full,
        Release, //
    },
    types::NotThreadSafe, //
};

/// The CPUs that this system can ever have. The set never changes once drivers run.
pub fn possible() -> &'static Cpumask {
    // SAFETY: `__cpu_possible_mask` is a valid `struct cpumask` for as long as the kernel runs.
    unsafe { Cpumask::from_raw(&raw const bindings::__cpu_possible_mask) }
}

/// The CPUs that are on line. Another CPU may leave or join at any time.
pub fn online() -> &'static Cpumask {
    // SAFETY: `__cpu_online_mask` is a valid `struct cpumask` for as long as the kernel runs; its
    // bits are read one by one with atomic loads.
    unsafe { Cpumask::from_raw(&raw const bindings::__cpu_online_mask) }
}

/// Whether `cpu` is in `mask`: [`Cpumask::test`] without a call into C, for paths that are taken
/// with each context switch.
#[inline]
pub fn contains(mask: &Cpumask, cpu: CpuId) -> bool {
    const BITS: usize = usize::BITS as usize;
    let cpu = cpu.as_u32() as usize;
    let words: *const usize = core::ptr::from_ref(mask).cast();

    // SAFETY: `Cpumask` is a transparent wrapper of C's struct, an array of words that has a bit for
    // each number that a `CpuId` can be. Others may change it meanwhile.
    let word = unsafe { words.add(cpu / BITS).read_volatile() };

    word >> (cpu % BITS) & 1 != 0
}

/// The CPUs of `mask` in ascending order.
pub fn cpus(mask: &Cpumask) -> impl Iterator<Item = CpuId> + '_ {
    (0..nr_cpu_ids())
        .filter_map(CpuId::from_u32)
        .filter(|cpu| mask.test(*cpu))
}

/// Whether the core that `cpu` is a thread of has more than one, as far as the firmware tells. C's
/// `topology_core_has_smt()`.
pub fn core_has_smt(cpu: CpuId) -> bool {
    #[cfg(CONFIG_GENERIC_ARCH_TOPOLOGY)]
    {
        let topology: *const bindings::cpu_topology = (&raw const bindings::cpu_topology).cast();

        // SAFETY: The array has an entry for each CPU number. What a CPU is part of is written
        // before it comes up for the first time, by the CPU that brings it up.
        let thread =
            unsafe { (&raw const (*topology.add(cpu.as_u32() as usize)).thread_id).read() };
        thread != -1
    }
    #[cfg(not(CONFIG_GENERIC_ARCH_TOPOLOGY))]
    {
        let _ = cpu;
        false
    }
}

/// Keeps CPUs from coming and going while it exists. C's `cpus_read_lock()`.
pub struct NoHotplug(NotThreadSafe);

impl NoHotplug {
    /// Waits for a change that is going on. May sleep; must not be called in a hotplug callback.
    pub fn new() -> Self {
        // SAFETY: It may be called by any task, as often as the other one is.
        unsafe { bindings::cpus_read_lock() };
        Self(NotThreadSafe)
    }
}

impl Default for NoHotplug {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for NoHotplug {
    fn drop(&mut self) {
        // SAFETY: `new()` has locked it, in this task.
        unsafe { bindings::cpus_read_unlock() };
    }
}

/// Shows a set of CPUs the way that sysfs does, as ranges: `0-3,6`. C's `%*pbl`.
///
/// # Examples
///
/// ```
/// use kernel::{
///     cpu::CpuId,
///     cpumask::CpumaskVar,
///     prelude::fmt,
///     smp::CpuList,
///     str::CString, //
/// };
///
/// let mut mask = CpumaskVar::new_zero(GFP_KERNEL)?;
/// mask.set(CpuId::from_u32(0).ok_or(EINVAL)?);
///
/// let shown = CString::try_from_fmt(fmt!("{}", CpuList(&mask)))?;
/// assert_eq!(shown.to_bytes(), b"0");
/// # Ok::<(), Error>(())
/// ```
pub struct CpuList<'a>(pub &'a Cpumask);

impl fmt::Display for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = cpus(self.0).map(|cpu| cpu.as_u32()).peekable();
        let mut separator = "";

        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }

            f.write_fmt(fmt!("{separator}{first}"))?;
            if last != first {
                f.write_fmt(fmt!("-{last}"))?;
            }
            separator = ",";
        }
        Ok(())
    }
}

/// A set of CPUs that may change while others look at it, CPU by CPU.
///
/// # Examples
///
/// ```
/// use kernel::{
///     cpu::CpuId,
///     smp::CpuSet, //
/// };
///
/// let first = CpuId::from_u32(0).ok_or(EINVAL)?;
/// let set = CpuSet::new()?;
/// assert!(set.empty());
///
/// set.add(first);
/// assert!(set.test(first));
/// set.remove(first);
/// assert!(!set.test(first));
///
/// set.add(first);
/// set.clear();
/// assert!(set.empty());
/// # Ok::<(), Error>(())
/// ```
pub struct CpuSet(CpumaskVar);

// SAFETY: It is plain memory, whose bits are changed by atomic operations and may be read meanwhile:
// who looks at several at once may see some changed and others not yet.
unsafe impl Send for CpuSet {}

// SAFETY: As above.
unsafe impl Sync for CpuSet {}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Result<Self> {
        Ok(Self(CpumaskVar::new_zero(GFP_KERNEL)?))
    }

    /// A set of the CPUs of `mask`.
    pub fn of(mask: &Cpumask) -> Result<Self> {
        Ok(Self(CpumaskVar::try_clone(mask)?))
    }

    /// Adds `cpu`. Does not sleep.
    pub fn add(&self, cpu: CpuId) {
        // SAFETY: The mask is valid. Its bits change one by one, by atomic operations.
        unsafe { bindings::cpumask_set_cpu(cpu.as_u32(), self.as_raw()) };
    }

    /// Takes `cpu` out. Does not sleep.
    pub fn remove(&self, cpu: CpuId) {
        // CPU numbers are small.
        let number = cpu.as_u32() as c_int;

        // SAFETY: As in `add()`.
        unsafe { bindings::cpumask_clear_cpu(number, self.as_raw()) };
    }

    /// Takes all CPUs out. Does not sleep.
    pub fn clear(&self) {
        cpus(possible()).for_each(|cpu| self.remove(cpu));
    }
}

impl Deref for CpuSet {
    type Target = Cpumask;

    #[inline]
    fn deref(&self) -> &Cpumask {
        &self.0
    }
}

/// CPUs of which each has one owner at most, such as the driver's instance that programs registers
/// there.
///
/// # Examples
///
/// ```
/// use kernel::smp;
///
/// static REGISTERS: smp::Ownership = smp::Ownership::new();
///
/// let all = REGISTERS.claim(smp::possible())?;
/// assert_eq!(REGISTERS.claim(smp::online()).err(), Some(EBUSY));
/// drop(all);
/// assert!(REGISTERS.claim(smp::online()).is_ok());
/// # Ok::<(), Error>(())
/// ```
pub struct Ownership([AtomicFlag; bindings::NR_CPUS as usize]);

impl Ownership {
    /// No CPU has an owner.
    pub const fn new() -> Self {
        Self([const { AtomicFlag::new(false) }; bindings::NR_CPUS as usize])
    }

    /// Takes the CPUs of `mask`, until the claim is dropped.
    ///
    /// Fails with [`EBUSY`] when one of them has an owner.
    pub fn claim(&'static self, mask: &Cpumask) -> Result<Claim> {
        let claim = Claim {
            ownership: self,
            cpus: CpuSet::new()?,
        };

        cpus(mask).try_for_each(|cpu| claim.extend(cpu))?;
        Ok(claim)
    }

    fn of(&self, cpu: CpuId) -> &AtomicFlag {
        // A CPU number is below `nr_cpu_ids`, which is at most `NR_CPUS`.
        &self.0[cpu.as_u32() as usize]
    }
}

impl Default for Ownership {
    fn default() -> Self {
        Self::new()
    }
}

/// CPUs that belong to the owner of this value.
pub struct Claim {
    ownership: &'static Ownership,
    cpus: CpuSet,
}

impl Claim {
    /// The CPUs.
    #[inline]
    pub fn cpus(&self) -> &Cpumask {
        &self.cpus
    }

    /// Takes one more CPU. Does not sleep.
    ///
    /// Fails with [`EBUSY`] when it has an owner.
    pub fn extend(&self, cpu: CpuId) -> Result {
        if self.ownership.of(cpu).xchg(true, Full) {
            return Err(EBUSY);
        }
        self.cpus.add(cpu);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for cpu in cpus(&self.cpus) {
            self.ownership.of(cpu).store(false, Release);
        }
    }
}

/// A function on its way to another CPU, and what it returned.
struct Call<F, R> {
    function: Option<F>,
    result: Option<R>,
}

impl<F, R> Call<F, R>
where
    F: FnOnce(&OnCpu<'_>) -> R + Send,
    R: Send,
{
    fn new(function: F) -> Self {
        Self {
            function: Some(function),
            result: None,
        }
    }

    /// # Safety
    ///
    /// To be called by `smp_call_function_*()` only, with `info` pointing to a `Self` that nobody
    /// else uses during the call.
    unsafe extern "C" fn run(info: *mut c_void) {
        // SAFETY: `info` is what the caller of `smp_call_function_*()` below passed, a pointer to
        // its `Call`; it waits until this function has returned.
        let call = unsafe { &mut *info.cast::<Self>() };

        // SAFETY: Such functions run with interrupts off until they return.
        let on = unsafe { OnCpu::current() };

        if let Some(function) = call.function.take() {
            call.result = Some(function(&on));
        }
    }
}

/// Calls `function` on `cpu`, with interrupts off there, and returns what it returned.
///
/// Waits for it. Must be called with interrupts on; `function` must neither sleep nor take long.
/// Fails with [`ENXIO`] when `cpu` is not on line.
pub fn call<F, R>(cpu: CpuId, function: F) -> Result<R>
where
    F: FnOnce(&OnCpu<'_>) -> R + Send,
    R: Send,
{
    let mut call = Call::new(function);

    // SAFETY: `run` fits the type of `call`, which stays here until the call is over, since we
    // wait for it. `F` and `R` are `Send`, so they may be used and made on the other CPU.
    to_result(unsafe {
        bindings::smp_call_function_single(
            cpu.into(),
            Some(Call::<F, R>::run),
            (&raw mut call).cast(),
            true,
        )
    })?;

    call.result.ok_or(ENXIO)
}

/// Calls `function` on one CPU of `mask`, like [`call`]: on this one if it belongs to `mask`, else
/// on one that is near.
///
/// Fails with [`ENXIO`] when no CPU of `mask` is on line.
pub fn call_any<F, R>(mask: &Cpumask, function: F) -> Result<R>
where
    F: FnOnce(&OnCpu<'_>) -> R + Send,
    R: Send,
{
    let mut call = Call::new(function);

    // SAFETY: As in `call()`; `mask` is valid for the call.
    to_result(unsafe {
        bindings::smp_call_function_any(
            mask.as_raw(),
            Some(Call::<F, R>::run),
            (&raw mut call).cast(),
            1,
        )
    })?;

    call.result.ok_or(ENXIO)
}

/// Calls `function` on each CPU that is on line, with interrupts off there, and waits for all.
///
/// Must be called with interrupts on; `function` must neither sleep nor take long.
pub fn call_each<F>(function: F)
where
    F: Fn(&OnCpu<'_>) + Sync,
{
    /// # Safety
    ///
    /// To be called by `on_each_cpu_cond_mask()` only, with `info` pointing to an `F`.
    unsafe extern "C" fn run<F: Fn(&OnCpu<'_>) + Sync>(info: *mut c_void) {
        // SAFETY: `info` points to the `F` of `call_each()`, which waits for all calls. The CPUs
        // share it, and it is `Sync`.
        let function = unsafe { &*info.cast::<F>() };

        // SAFETY: Such functions run with interrupts off until they return.
        function(&unsafe { OnCpu::current() });
    }

    // SAFETY: `run` fits the type of `function`, which lives until all calls are over, since we
    // wait for them; the mask is valid for as long as the kernel runs.
    unsafe {
        bindings::on_each_cpu_cond_mask(
            None,
            Some(run::<F>),
            (&raw const function).cast_mut().cast(),
            true,
            online().as_raw(),
        )
    };
}

#[kunit_tests(rust_smp)]
mod tests {
    use super::*;
    use kernel::{
        cpumask::CpumaskVar,
        str::CString, //
    };

    #[test]
    fn a_claim_grows_by_cpus_without_an_owner() -> Result {
        static OWNERSHIP: Ownership = Ownership::new();
        let nobody = CpumaskVar::new_zero(GFP_KERNEL)?;
        let first = CpuId::from_u32(0).ok_or(EINVAL)?;

        let (one, other) = (OWNERSHIP.claim(&nobody)?, OWNERSHIP.claim(&nobody)?);
        assert!(one.extend(first).is_ok());
        assert!(one.cpus().test(first));
        assert_eq!(other.extend(first).err(), Some(EBUSY));
        assert!(!other.cpus().test(first));

        drop(one);
        assert!(other.extend(first).is_ok());
        Ok(())
    }

    fn list(cpus: &[u32]) -> Result<CString> {
        let mut mask = CpumaskVar::new_zero(GFP_KERNEL)?;

        // Only numbers that this system has.
        for cpu in cpus.iter().copied().filter_map(CpuId::from_u32) {
            mask.set(cpu);
        }
        CString::try_from_fmt(fmt!("{}", CpuList(&mask)))
    }

    #[test]
    fn lists_are_ranges() -> Result {
        assert!(list(&[])?.to_bytes() == b"");
        assert!(list(&[0])?.to_bytes() == b"0");
        if nr_cpu_ids() >= 4 {
            assert!(list(&[0, 1, 3])?.to_bytes() == b"0-1,3");
            assert!(list(&[0, 1, 2, 3])?.to_bytes() == b"0-3");
        }
        Ok(())
    }

    #[test]
    fn a_call_runs_on_the_cpu_it_is_for() -> Result {
        for cpu in online_cpus() {
            assert_eq!(call(cpu, |on| on.cpu())?, cpu);
            assert_eq!(call(cpu, |_on| CpuId::current())?, cpu);
        }
        Ok(())
    }

    #[test]
    fn a_call_to_nobody_fails() -> Result {
        let nobody = CpumaskVar::new_zero(GFP_KERNEL)?;

        assert_eq!(call_any(&nobody, |on| on.cpu()).err(), Some(ENXIO));
        Ok(())
    }

    fn online_cpus() -> impl Iterator<Item = CpuId> {
        cpus(online())
    }
}
