/**
 * Installs the packages that the lock file of the folder names, unless they are installed. Calls `onInstall` before it installs.
 * Several processes may call it at once.
 */
export function ensurePackages(folder: string, onInstall?: () => void): Promise<void>;
