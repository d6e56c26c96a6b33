/** Installs the packages that the lock file of the folder names, unless they are installed. Several processes may call it at once. */
export function ensurePackages(folder: string): Promise<void>;
