"""both: importing is_no_python failed: ModuleNotFoundError"""

import a_module_that_nobody_has  # noqa: F401
